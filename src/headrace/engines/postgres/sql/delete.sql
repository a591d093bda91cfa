-- Remove old jobs with all that is kept of them, and count them; how many, and which were kept to be looked at again, as
-- the text of an array. {latest}: the latest moment up to which jobs are removed, for core.limit.forgets.
turns AS (
  DELETE FROM {schema}.heads h
  USING (
    SELECT DISTINCT p.task, j.turn_key
    FROM old o JOIN {schema}.jobs j ON j.seq = o.seq JOIN {schema}.lines l ON l.id = j.line
      JOIN {schema}.profiles p ON p.id = l.profile
    WHERE j.turn_key IS NOT NULL
  ) k
  WHERE h.task = k.task AND h.key = k.turn_key AND h.rank IS NULL AND h.last <= {latest}
    -- What came into line since the last claim is not in its place yet.
    AND NOT EXISTS (SELECT 1 FROM {schema}.arrivals a WHERE a.line = h.line AND a.key = h.key)
),
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
