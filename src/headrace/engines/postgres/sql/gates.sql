-- Lock the gates of these names, and those of the tasks with keys that take turns in these subqueues, always in the
-- same order. Returns each name, and whether there is such a gate. $1 names, $2 subqueues, $3 their tasks
WITH meant AS MATERIALIZED (
  SELECT unnest($1::text[]) AS name
  UNION
  SELECT 'task:' || t.task FROM unnest($2::integer[], $3::text[]) AS t (subqueue, task)
  -- Numbers, not EXISTS: for EXISTS the planner might choose to read all subqueues first. In order, so that only one
  -- index fits.
  WHERE (
      SELECT 1 FROM {schema}.heads h WHERE h.subqueue = t.subqueue AND h.rank IS NOT NULL ORDER BY rank, at, seq LIMIT 1) = 1
    OR (SELECT 1 FROM {schema}.arrivals a WHERE a.subqueue = t.subqueue LIMIT 1) = 1
),
held AS MATERIALIZED (
  SELECT g.name FROM {schema}.gates g WHERE g.name = ANY (ARRAY(SELECT name FROM meant)) ORDER BY g.name FOR UPDATE
)
SELECT m.name, h.name IS NOT NULL FROM meant m LEFT JOIN held h ON h.name = m.name
