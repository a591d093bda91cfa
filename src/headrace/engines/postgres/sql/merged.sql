-- The jobs that took over what was submitted under some ids: [[id, record], …]. [id, …]
SELECT coalesce(json_agg(json_build_array(e.id, json_build_array({record}))), '[]')::text
FROM json_array_elements_text($1::text::json) AS e (id)
  -- One by one: the planner assumes many ids, and might choose to read the whole table.
  CROSS JOIN LATERAL (SELECT seq FROM {schema}.labels WHERE label = 'm' || e.id OFFSET 0) l
  CROSS JOIN LATERAL (SELECT * FROM {schema}.jobs WHERE jobs.seq = l.seq OFFSET 0) j
  CROSS JOIN LATERAL (SELECT * FROM {schema}.bodies WHERE bodies.id = j.id OFFSET 0) b
