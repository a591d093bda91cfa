-- The blocks in which there are jobs of some subqueues, the last ones first: [subqueue, …] as JSON, below which, how
-- many.
WITH asked AS MATERIALIZED (SELECT ?::text::json AS subqueues, ?::bigint AS below, ?::bigint AS most)
SELECT DISTINCT o.block
FROM asked a CROSS JOIN json_array_elements_text(a.subqueues) AS l (subqueue) CROSS JOIN LATERAL (
  SELECT DISTINCT i.block FROM {schema}.subqueue_blocks i WHERE i.subqueue = l.subqueue::integer AND i.block < a.below
  ORDER BY i.block DESC LIMIT a.most
) o
ORDER BY o.block DESC
LIMIT (SELECT most FROM asked)
