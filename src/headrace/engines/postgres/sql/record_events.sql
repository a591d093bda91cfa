-- Store events of jobs. [[order number, event], …]
INSERT INTO {schema}.events (seq, data)
SELECT (r ->> 0)::bigint, r ->> 1 FROM json_array_elements($1::text::json) AS e (r)
