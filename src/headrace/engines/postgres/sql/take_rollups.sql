-- Take rows that have become another step, or are too old. $1 minutes, $2 hours, $3 days before this, $4 how many
DELETE FROM {schema}.rollups WHERE ctid = ANY (ARRAY(
  SELECT r.ctid
  FROM {schema}.rollups r
  WHERE (r.step = 60 AND r.at < $1) OR (r.step = 3600 AND r.at < $2) OR (r.step = 86400 AND r.at < $3)
  LIMIT $4 FOR UPDATE SKIP LOCKED))
RETURNING step, at, task, queue, data
