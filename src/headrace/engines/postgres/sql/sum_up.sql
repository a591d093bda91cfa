-- Make one row of many in a table of sums; rows that others have locked are left for the next time. $1 how many at most
WITH deltas AS (
  DELETE FROM {schema}.{table}
  WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.{table} LIMIT $1 FOR UPDATE SKIP LOCKED))
  RETURNING {columns}
),
summed AS (INSERT INTO {schema}.{table} ({columns}) SELECT {sums} FROM deltas HAVING count(*) > 0)
SELECT count(*) FROM deltas
