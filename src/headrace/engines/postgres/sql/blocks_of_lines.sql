-- The blocks in which there are jobs of some lines, the last ones first: [line, …] as JSON, below which, how many.
WITH asked AS MATERIALIZED (SELECT ?::text::json AS lines, ?::bigint AS below, ?::bigint AS most)
SELECT DISTINCT o.block
FROM asked a CROSS JOIN json_array_elements_text(a.lines) AS l (line) CROSS JOIN LATERAL (
  SELECT DISTINCT i.block FROM {schema}.line_blocks i WHERE i.line = l.line::integer AND i.block < a.below
  ORDER BY i.block DESC LIMIT a.most
) o
ORDER BY o.block DESC
LIMIT (SELECT most FROM asked)
