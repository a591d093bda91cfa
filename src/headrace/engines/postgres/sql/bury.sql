-- Declare a worker dead if its beat number is still this one; waits for its claims under way. The first time, with whether
-- suspects and others ran on it. $1 worker, $2 beats
WITH row AS MATERIALIZED (
  -- A claim locks the row with KEY SHARE, and only this lock waits for that.
  SELECT id FROM {schema}.workers WHERE id = $1 AND beats = $2 FOR UPDATE
),
ran AS MATERIALIZED (
  SELECT coalesce(bool_or{suspect} AND NOT bool_and{suspect}, false) AS both_kinds FROM {schema}.jobs j
  WHERE j.worker = $1 AND j.stage = 3 AND j.status = 'running'
)
UPDATE {schema}.workers w
SET alive = false, beside_suspect = CASE WHEN w.alive THEN ran.both_kinds ELSE w.beside_suspect END
FROM row, ran WHERE w.id = row.id RETURNING 1
