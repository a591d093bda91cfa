-- Which ids, dedup keys and request keys are stored. {"ids": [id, …], "keys": [key, …], "requests": [key, …]} → [[by
-- what it was found, record], …]: null for its id, else a letter and the key
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d)
SELECT coalesce(json_agg(json_build_array(f.by, f.record)), '[]')::text FROM (
  SELECT NULL AS by, json_build_array({record}) AS record
  FROM {schema}.bodies b JOIN {schema}.jobs j ON j.seq = b.seq
  WHERE b.id = ANY (ARRAY(SELECT value::uuid FROM doc, json_array_elements_text(d -> 'ids')))
  UNION ALL
  SELECT 'd' || j.held_key, json_build_array({record})
  FROM {schema}.jobs j JOIN {schema}.bodies b ON b.id = j.id
  WHERE j.held_key IS NOT NULL
    AND j.held_key = ANY (ARRAY(SELECT value FROM doc, json_array_elements_text(d -> 'keys')))
  UNION ALL
  SELECT 'r' || b.request, json_build_array({record})
  FROM {schema}.bodies b JOIN {schema}.jobs j ON j.seq = b.seq
  WHERE b.request IS NOT NULL
    AND b.request = ANY (ARRAY(SELECT value FROM doc, json_array_elements_text(d -> 'requests')))
) f
