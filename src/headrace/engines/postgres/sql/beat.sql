-- Raise the beat number of a worker that is alive, count the jobs it did not name, and answer what it should know.
-- $1 worker, $2 jobs given up to this moment should be named, $3 the named ones, from $4 on: sql.workers.COLUMNS that
-- change
WITH beaten AS (
  UPDATE {schema}.workers SET beats = beats + 1, {worker_changed} WHERE id = $1 AND alive RETURNING beats
),
holding AS MATERIALIZED (
  SELECT j.seq, j.id, j.cancel_requested_at IS NOT NULL AS cancelled, j.unnamed, j.assigned_at <= $2 AS old,
    j.id = ANY ($3::uuid[]) AS named
  FROM {schema}.jobs j
  WHERE j.stage = 3 AND j.worker = $1
),
-- Most beats name all jobs, and then this writes none.
counted AS (
  UPDATE {schema}.jobs
  SET unnamed = CASE WHEN seq = ANY (ARRAY(SELECT seq FROM holding WHERE named)) THEN 0 ELSE unnamed + 1 END
  WHERE worker = $1 AND EXISTS (SELECT 1 FROM beaten)
    -- A job that another transaction has locked, maybe to complete it, is counted with a later beat.
    AND seq = ANY (ARRAY(
      SELECT seq FROM {schema}.jobs
      WHERE seq = ANY (ARRAY(SELECT seq FROM holding WHERE old AND (unnamed > 0 OR NOT named)))
      FOR NO KEY UPDATE SKIP LOCKED))
)
SELECT (SELECT beats FROM beaten), profiles_rev, settings_rev,
  ARRAY(SELECT id FROM holding WHERE cancelled ORDER BY seq),
  ARRAY(SELECT id FROM holding WHERE old AND NOT named ORDER BY seq),
  (extract(epoch FROM clock_timestamp()) * 1e6)::bigint
FROM {schema}.books
