-- Hold these keys until the transaction ends, those that nobody holds; which. [number, …]
SELECT coalesce(json_agg(held), '[]')::text FROM (
  SELECT pg_try_advisory_xact_lock(value::bigint) AS held
  FROM (SELECT value FROM json_array_elements_text($1::text::json) OFFSET 0) t
) u
