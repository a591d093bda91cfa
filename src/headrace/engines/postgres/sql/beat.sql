-- Raise the beat number of a worker that is alive, count what it did not name, and tell what it should know.
-- $1 worker, $2 its beat, $3 the moment, $4 jobs given before this should be named, $5 those that are
WITH beaten AS (
  UPDATE {schema}.workers SET beats = beats + 1, beat = $2, beat_at = $3 WHERE id = $1 AND alive RETURNING beats
),
holding AS MATERIALIZED (
  SELECT j.seq, b.id, j.cancel_requested_at IS NOT NULL AS cancelled, j.unnamed, j.assigned_at <= $4 AS old,
    b.id = ANY ($5::uuid[]) AS named
  FROM {schema}.jobs j JOIN {schema}.bodies b ON b.seq = j.seq
  WHERE j.stage = 3 AND j.worker = $1
),
-- Most beats name everything: then this writes no job at all.
counted AS (
  UPDATE {schema}.jobs j SET unnamed = CASE WHEN h.named THEN 0 ELSE j.unnamed + 1 END
  FROM holding h
  WHERE j.seq = h.seq AND j.worker = $1 AND h.old AND (h.unnamed > 0 OR NOT h.named)
    AND EXISTS (SELECT 1 FROM beaten)
)
SELECT (SELECT beats FROM beaten), profiles_rev, settings_rev,
  ARRAY(SELECT id FROM holding WHERE cancelled ORDER BY seq),
  ARRAY(SELECT id FROM holding WHERE old AND NOT named ORDER BY seq)
FROM {schema}.books
