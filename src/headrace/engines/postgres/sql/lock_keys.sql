-- Lock these keys until the transaction ends, and wait for other holders. [number, …], sorted
SELECT coalesce(json_agg(held), '[]')::text FROM (
  SELECT pg_advisory_xact_lock(value::bigint) IS NOT NULL AS held
  FROM (SELECT value FROM json_array_elements_text($1::text::json) OFFSET 0) t
) u
