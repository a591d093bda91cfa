-- Remove bodies whose jobs were not stored after all. [order number, …]
WITH gone AS (
  DELETE FROM {schema}.bodies
  WHERE seq = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text($1::text::json)))
  RETURNING 1
)
SELECT count(*)::text FROM gone
