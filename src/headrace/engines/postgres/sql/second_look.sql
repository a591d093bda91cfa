-- For jobs whose change was not applied, in order: [[id of the last change, record, record of the job with the key],
-- …]. [[id, key or null], …]
SELECT coalesce(json_agg(json_build_array(
  (SELECT j.change FROM {schema}.bodies b JOIN {schema}.jobs j ON j.seq = b.seq WHERE b.id = (r ->> 0)::uuid),
  (SELECT json_build_array({record}) FROM {schema}.bodies b JOIN {schema}.jobs j ON j.seq = b.seq
   WHERE b.id = (r ->> 0)::uuid),
  (SELECT json_build_array({record}) FROM {schema}.jobs j JOIN {schema}.bodies b ON b.id = j.id
   WHERE j.held_key IS NOT NULL AND j.held_key = r ->> 1 AND b.id <> (r ->> 0)::uuid)
) ORDER BY place), '[]')::text
FROM json_array_elements($1::text::json) WITH ORDINALITY AS e (r, place)
