-- Give customers stakes in subqueues. [[customer, subqueue], …]
INSERT INTO {schema}.stakes (customer, subqueue)
SELECT r ->> 0, (r ->> 1)::integer FROM json_array_elements($1::text::json) AS e (r) ON CONFLICT DO NOTHING
