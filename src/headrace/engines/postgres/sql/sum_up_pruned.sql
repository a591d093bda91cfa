-- Make one row of many in the counts of pruned jobs by kind, as sum_up does in the ledger. $1 maximum
WITH deltas AS (
  DELETE FROM {schema}.pruned WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.pruned LIMIT $1 FOR UPDATE SKIP LOCKED))
  RETURNING completed, failed, cancelled
),
summed AS (
  INSERT INTO {schema}.pruned (completed, failed, cancelled)
  SELECT sum(completed), sum(failed), sum(cancelled) FROM deltas HAVING count(*) > 0
)
SELECT count(*) FROM deltas
