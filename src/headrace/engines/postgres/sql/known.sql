-- Of ids and keys, which are here. {"ids": [id, …], "keys": [key, …]} → [[key or null, record], …]
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d)
SELECT coalesce(json_agg(json_build_array(f.key, f.record)), '[]')::text FROM (
  SELECT NULL AS key, json_build_array({record}) AS record
  FROM {schema}.bodies b JOIN {schema}.jobs j ON j.seq = b.seq
  WHERE b.id = ANY (ARRAY(SELECT value::uuid FROM doc, json_array_elements_text(d -> 'ids')))
  UNION ALL
  SELECT j.held_key, json_build_array({record})
  FROM {schema}.jobs j JOIN {schema}.bodies b ON b.id = j.id
  WHERE j.held_key IS NOT NULL
    AND j.held_key = ANY (ARRAY(SELECT value FROM doc, json_array_elements_text(d -> 'keys')))
) f
