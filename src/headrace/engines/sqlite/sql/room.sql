-- Whether there is room for these profiles. $1: [how many may be live, whether those with stakes of customers do not
-- count, [[task, what it requires], …]]
WITH wanted AS MATERIALIZED (
  SELECT $1 ->> 0 AS most, $1 ->> 1 AS own, count(*) AS new FROM json_each($1 -> 2) w
  WHERE NOT EXISTS (SELECT 1 FROM profiles p WHERE p.task = w.value ->> 0 AND p.requires = w.value ->> 1 AND p.live)
)
SELECT (SELECT count(*) FROM profiles WHERE live) + new <= most OR (
  own AND new + (
    SELECT count(*) FROM profiles WHERE live AND coalesce(base, id) NOT IN (
      SELECT coalesce(q.base, q.id)
      FROM stakes s CROSS JOIN subqueues l ON l.id = s.subqueue CROSS JOIN profiles q ON q.id = l.profile)) <= most)
FROM wanted
