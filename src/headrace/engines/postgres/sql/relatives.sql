-- Lock the relatives of new jobs, and return their statuses. [id, …] → [[id, status, whether its cancel was requested],
-- …] for those that are stored; no status if one is gone by now or, without waiting, is locked by another. In the order
-- in which all transactions lock jobs.
WITH wanted AS MATERIALIZED (
  SELECT b.id, b.seq FROM {schema}.bodies b
  WHERE b.id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($1::text::json)))
),
held AS MATERIALIZED (
  SELECT j.seq, j.status, j.cancel_requested_at IS NOT NULL AS asked FROM {schema}.jobs j
  WHERE j.seq = ANY (ARRAY(SELECT seq FROM wanted))
  ORDER BY j.seq FOR {lock}
)
SELECT coalesce(json_agg(json_build_array(w.id, h.status, coalesce(h.asked, false))), '[]')::text
FROM wanted w LEFT JOIN held h USING (seq)
