-- Lock those of these keys that are free, until the transaction ends; returns for each whether it was. [number, …]
SELECT coalesce(json_agg(held), '[]')::text FROM (
  SELECT pg_try_advisory_xact_lock(value::bigint) AS held
  FROM (SELECT value FROM json_array_elements_text($1::text::json) OFFSET 0) t
) u
