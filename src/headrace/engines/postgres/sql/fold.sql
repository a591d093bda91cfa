-- Add up the counts of batches, seal those with a silent submitter, and write when one ended. $1 the moment, $2 the
-- moment since which one is silent, $3 how many deltas. Returns how many deltas there were, and the batches that are
-- over.
WITH deltas AS MATERIALIZED (SELECT ctid AS place, batch FROM {schema}.batch_counts LIMIT $3),
silent AS MATERIALIZED (
  SELECT b.id FROM {schema}.batches b
  WHERE NOT b.sealed AND b.touched_at <= $2
    AND NOT EXISTS (SELECT 1 FROM {schema}.batch_counts c WHERE c.batch = b.id AND c.at > $2)
),
mine AS MATERIALIZED (
  -- In order, so that there is no deadlock. An earlier holder of these locks has added up and deleted their deltas, and
  -- this statement then finds them gone.
  SELECT b.id FROM {schema}.batches b
  WHERE b.id = ANY (ARRAY(
    SELECT batch FROM deltas
    UNION
    SELECT id FROM silent
    UNION
    SELECT id FROM {schema}.batches
    WHERE sealed AND NOT settled AND completed + failed + cancelled >= total AND ended_at IS NULL))
  ORDER BY b.id FOR NO KEY UPDATE
),
-- Also the deltas of batches that are gone.
taken AS (
  DELETE FROM {schema}.batch_counts
  WHERE ctid = ANY (ARRAY(SELECT place FROM deltas)) AND (SELECT count(*) FROM mine) >= 0
  RETURNING batch, at, total, completed, failed, cancelled
),
summed AS MATERIALIZED (
  SELECT m.id, m.id IN (SELECT id FROM silent) AS silent, coalesce(max(t.at), 0) AS at,
    coalesce(sum(t.total), 0) AS total, coalesce(sum(t.completed), 0) AS completed,
    coalesce(sum(t.failed), 0) AS failed, coalesce(sum(t.cancelled), 0) AS cancelled
  FROM mine m LEFT JOIN taken t ON t.batch = m.id
  GROUP BY m.id
),
folded AS (
  UPDATE {schema}.batches b SET
    touched_at = greatest(b.touched_at, s.at), total = b.total + s.total, completed = b.completed + s.completed,
    failed = b.failed + s.failed, cancelled = b.cancelled + s.cancelled,
    abandoned = b.abandoned OR (s.silent AND NOT b.sealed AND b.touched_at <= $2),
    sealed = b.sealed OR (s.silent AND b.touched_at <= $2),
    ended_at = coalesce(b.ended_at, CASE
      WHEN (b.sealed OR (s.silent AND b.touched_at <= $2))
        AND b.completed + b.failed + b.cancelled + s.completed + s.failed + s.cancelled >= b.total + s.total
      THEN $1::bigint END)
  FROM summed s WHERE b.id = s.id
  RETURNING b.*
),
ended AS (
  SELECT * FROM folded
  UNION ALL
  SELECT * FROM {schema}.batches
  WHERE sealed AND NOT settled AND completed + failed + cancelled >= total AND id NOT IN (SELECT id FROM mine)
)
SELECT (SELECT count(*) FROM deltas), {batch_ended}
FROM (SELECT 1) one LEFT JOIN ended o ON o.sealed AND NOT o.settled AND o.completed + o.failed + o.cancelled >= o.total
ORDER BY o.ended_at, o.id
