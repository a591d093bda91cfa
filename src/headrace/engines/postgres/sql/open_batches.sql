-- Lock the batches of new jobs against a cancel, and return whether they were cancelled. [id, …] → [[id, whether], …]
-- for those that are stored; null if one is gone by now or, without waiting, is being cancelled. Counts can still be
-- added up.
WITH wanted AS MATERIALIZED (
  SELECT id FROM {schema}.batches
  WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($1::text::json)))
),
held AS MATERIALIZED (
  SELECT b.id, b.cancelled_at IS NOT NULL AS cancelled FROM {schema}.batches b
  WHERE b.id = ANY (ARRAY(SELECT id FROM wanted))
  ORDER BY b.id FOR {lock}
)
SELECT coalesce(json_agg(json_build_array(w.id, h.cancelled)), '[]')::text FROM wanted w LEFT JOIN held h USING (id)
