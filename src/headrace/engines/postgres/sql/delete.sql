-- Remove old jobs with all that is stored of them, and count them; returns how many, and which must be checked again,
-- as the text of an array. {latest}: the latest moment up to which jobs are removed, for core.limits.selection.forgets.
turns AS (
  DELETE FROM {schema}.heads
  -- Found key by key: for a join, the planner might choose to read all heads, if there were few at its last analysis.
  WHERE ctid = ANY (ARRAY(
    SELECT h.ctid
    FROM (
      SELECT DISTINCT p.task, j.turn_key
      FROM old o JOIN {schema}.jobs j ON j.seq = o.seq JOIN {schema}.subqueues l ON l.id = j.subqueue
        JOIN {schema}.profiles p ON p.id = l.profile
      WHERE j.turn_key IS NOT NULL
    ) k CROSS JOIN LATERAL (
      SELECT i.ctid FROM {schema}.heads i
      WHERE i.task = k.task AND i.key = k.turn_key AND i.rank IS NULL AND i.last <= {latest}
        -- Jobs that arrived since the last claim have not moved the head yet.
        AND (SELECT 1 FROM {schema}.arrivals a WHERE a.subqueue = i.subqueue AND a.key = i.key LIMIT 1) IS NULL
      OFFSET 0
    ) h
  ))
  -- Tested again, because a key may have taken a turn meanwhile.
  AND rank IS NULL AND last <= {latest}
),
jobs AS (DELETE FROM {schema}.jobs WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING status, subqueue),
bodies AS (DELETE FROM {schema}.bodies WHERE id = ANY (ARRAY(SELECT id FROM old))),
attempts AS (DELETE FROM {schema}.attempts WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
events AS (DELETE FROM {schema}.events WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
labels AS (DELETE FROM {schema}.labels WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
entries AS (DELETE FROM {schema}.entries WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
waits AS (DELETE FROM {schema}.waits WHERE child = ANY (ARRAY(SELECT seq FROM old))),
subqueue_blocks AS (
  DELETE FROM {schema}.subqueue_blocks WHERE ctid = ANY (ARRAY(
    SELECT o.ctid FROM {schema}.subqueues l CROSS JOIN LATERAL (
      SELECT i.ctid FROM {schema}.subqueue_blocks i
      WHERE i.subqueue = l.id AND i.block < (SELECT seq FROM {schema}.jobs WHERE seq > 0 ORDER BY seq LIMIT 1) >> 10
      OFFSET 0
    ) o
  ))
),
time_blocks AS (DELETE FROM {schema}.time_blocks WHERE block < (SELECT seq FROM {schema}.jobs WHERE seq > 0 ORDER BY seq LIMIT 1) >> 13),
booked AS (
  INSERT INTO {schema}.ledger (accepted, pruned) SELECT 0, count(*) FROM jobs HAVING count(*) > 0
),
booked_by_kind AS (
  INSERT INTO {schema}.pruned (completed, failed, cancelled, own_completed, own_failed, own_cancelled)
  SELECT count(*) FILTER (WHERE status = {completed}), count(*) FILTER (WHERE status = {failed}),
    count(*) FILTER (WHERE status = {cancelled}), count(*) FILTER (WHERE status = {completed} AND own),
    count(*) FILTER (WHERE status = {failed} AND own), count(*) FILTER (WHERE status = {cancelled} AND own)
  FROM (
    SELECT status, subqueue = ANY (ARRAY(
      SELECT l.id FROM {schema}.profiles p JOIN {schema}.subqueues l ON l.profile = p.id WHERE {own_task})) AS own
    FROM jobs
  ) k HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM jobs), '{' || coalesce((SELECT string_agg(seq::text, ',') FROM kept), '') || '}'
