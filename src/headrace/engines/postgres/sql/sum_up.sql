-- Make one row of many in the ledger; rows that others have locked are left for the next time. $1 maximum
WITH deltas AS (
  DELETE FROM {schema}.ledger WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.ledger LIMIT $1 FOR UPDATE SKIP LOCKED))
  RETURNING accepted, pruned
),
summed AS (
  INSERT INTO {schema}.ledger (accepted, pruned) SELECT sum(accepted), sum(pruned) FROM deltas HAVING count(*) > 0
)
SELECT count(*) FROM deltas
