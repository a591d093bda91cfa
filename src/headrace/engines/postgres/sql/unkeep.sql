-- Remove bodies without a stored job. [id, …]
WITH gone AS (
  DELETE FROM {schema}.bodies WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($1::text::json)))
  RETURNING 1
)
SELECT count(*)::text FROM gone
