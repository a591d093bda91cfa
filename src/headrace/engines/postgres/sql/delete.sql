-- Remove old jobs with all that is kept of them, and count them; how many, and which were kept to be looked at again, as
-- the text of an array.
jobs AS (DELETE FROM {schema}.jobs WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING seq),
bodies AS (DELETE FROM {schema}.bodies WHERE id = ANY (ARRAY(SELECT id FROM old))),
attempts AS (DELETE FROM {schema}.attempts WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
events AS (DELETE FROM {schema}.events WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
labels AS (DELETE FROM {schema}.labels WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
entries AS (DELETE FROM {schema}.entries WHERE seq = ANY (ARRAY(SELECT seq FROM old))),
waits AS (DELETE FROM {schema}.waits WHERE child = ANY (ARRAY(SELECT seq FROM old))),
booked AS (
  INSERT INTO {schema}.ledger (accepted, pruned) SELECT 0, count(*) FROM jobs HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM jobs), '{' || coalesce((SELECT string_agg(seq::text, ',') FROM kept), '') || '}'
