-- Raise the beat numbers of workers that are alive, store their reports, count the jobs they did not name, and return
-- what they should know. $1 jobs given up to this moment should be named; of each worker, in their order: $2 its id, $3
-- the number of its report, $4 the report, from $5 on: sql.workers.COLUMNS that change; then, of each job that was
-- named, the worker and the id
WITH said AS MATERIALIZED (
  SELECT * FROM unnest($2::text::uuid[], $3::text::bigint[], $4::text::text[], {worker_arrays}) AS s (id, report, finished, {worker_said})
),
living AS MATERIALIZED (
  SELECT s.*, w.reported
  FROM said s CROSS JOIN LATERAL (
    -- One after another, in order, so that there is no deadlock.
    SELECT w.reported FROM {schema}.workers w WHERE w.id = s.id AND w.alive FOR NO KEY UPDATE
  ) w
),
beaten AS (
  UPDATE {schema}.workers w SET beats = w.beats + 1, reported = greatest(w.reported, l.report), {worker_changed}
  FROM living l WHERE w.id = l.id RETURNING w.id, w.beats
),
handed_in AS (
  INSERT INTO {schema}.reports (data) SELECT finished FROM living WHERE report > reported AND finished IS NOT NULL
),
holding AS MATERIALIZED (
  SELECT l.id AS worker, j.seq, j.id, j.cancelled, j.unnamed, j.old,
    -- Not a join: with many of each, the cached plan would compare each with each.
    (l.id, j.id) IN (SELECT t.worker, t.job FROM unnest({named_arrays}) AS t (worker, job)) AS named
  FROM living l CROSS JOIN LATERAL (
    SELECT j.seq, j.id, j.cancel_requested_at IS NOT NULL AS cancelled, j.unnamed, j.assigned_at <= $1 AS old
    FROM {schema}.jobs j
    WHERE j.stage = 3 AND j.worker = l.id
    OFFSET 0
  ) j
),
-- Most beats name all jobs, and then this writes none.
counted AS (
  UPDATE {schema}.jobs
  SET unnamed = CASE WHEN seq = ANY (ARRAY(SELECT seq FROM holding WHERE named)) THEN 0 ELSE unnamed + 1 END
  WHERE (worker, seq) IN (SELECT worker, seq FROM holding)
    -- A job that another transaction has locked, maybe to complete it, is counted with a later beat.
    AND seq = ANY (ARRAY(
      SELECT seq FROM {schema}.jobs
      WHERE seq = ANY (ARRAY(SELECT seq FROM holding WHERE old AND (unnamed > 0 OR NOT named)))
      FOR NO KEY UPDATE SKIP LOCKED))
)
SELECT profiles_rev, settings_rev, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint,
  (SELECT coalesce(json_agg(json_build_array(id, beats)), '[]')::text FROM beaten),
  (SELECT coalesce(json_agg(json_build_array(worker, id) ORDER BY seq), '[]')::text FROM holding WHERE cancelled),
  (SELECT coalesce(json_agg(json_build_array(worker, id) ORDER BY seq), '[]')::text FROM holding WHERE old AND NOT named)
FROM {schema}.books
