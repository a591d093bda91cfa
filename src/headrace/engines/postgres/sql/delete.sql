-- Remove ended jobs with all that is kept of them, and count them. $1 statuses, $2 moments as a text, $3 most
WITH old AS MATERIALIZED (
  SELECT o.seq, o.id
  FROM unnest($1::text[], $2::text::bigint[]) AS t (status, before) CROSS JOIN LATERAL (
    SELECT j.seq, j.id FROM {schema}.jobs j
    WHERE j.stage >= 4 AND j.status = t.status AND j.finished_at <= t.before
    ORDER BY j.finished_at LIMIT $3 FOR UPDATE SKIP LOCKED
  ) o
  LIMIT $3
),
turns AS (DELETE FROM {schema}.turns_taken WHERE last <= (SELECT max(before) FROM unnest($2::text::bigint[]) AS t (before))),
jobs AS (DELETE FROM {schema}.jobs WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING seq),
bodies AS (DELETE FROM {schema}.bodies WHERE id = ANY (ARRAY(SELECT id FROM old))),
attempts AS (DELETE FROM {schema}.attempts WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
events AS (DELETE FROM {schema}.events WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
labels AS (DELETE FROM {schema}.labels WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
entries AS (DELETE FROM {schema}.entries WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
booked AS (
  INSERT INTO {schema}.ledger (accepted, pruned) SELECT 0, count(*) FROM jobs HAVING count(*) > 0
)
SELECT count(*) FROM jobs
