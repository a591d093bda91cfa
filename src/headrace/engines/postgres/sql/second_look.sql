-- For jobs with a change that was not applied, in order: [[id of the last change, record, record of the job with the
-- key, attempt as in history.sql], …]. [[id, key or null, number of an attempt or null], …]
SELECT coalesce(json_agg(json_build_array(
  (SELECT j.change FROM {schema}.bodies b JOIN {schema}.jobs j ON j.seq = b.seq WHERE b.id = (r ->> 0)::uuid),
  (SELECT json_build_array({record}) FROM {schema}.bodies b JOIN {schema}.jobs j ON j.seq = b.seq
   WHERE b.id = (r ->> 0)::uuid),
  (SELECT json_build_array({record}) FROM {schema}.jobs j JOIN {schema}.bodies b ON b.id = j.id
   WHERE j.held_key IS NOT NULL AND j.held_key = r ->> 1 AND b.id <> (r ->> 0)::uuid),
  (SELECT json_build_array(a.number, a.folded, a.until, a.data::json) FROM (
     SELECT number, folded, until, data FROM {schema}.attempts
     WHERE seq = (SELECT b.seq FROM {schema}.bodies b WHERE b.id = (r ->> 0)::uuid) AND number = (r ->> 2)::integer
     UNION ALL
     SELECT number, 0, NULL, json_build_array({past_of_completed})::text FROM {schema}.jobs
     WHERE seq = (SELECT b.seq FROM {schema}.bodies b WHERE b.id = (r ->> 0)::uuid) AND number = (r ->> 2)::integer
   ) a LIMIT 1)
) ORDER BY place), '[]')::text
FROM json_array_elements($1::text::json) WITH ORDINALITY AS e (r, place)
