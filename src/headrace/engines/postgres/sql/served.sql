-- The subqueues of these profiles in requested queues that are not paused, with their positions, queues and tasks, and
-- their customers where these have subqueues of their own; the queues that have a priority; and the revs for which all
-- that is valid. $1 profiles, $2 queues
SELECT b.subqueues_rev, b.settings_rev, s.subqueues, s.places, s.queues, s.tasks,
  ARRAY(SELECT name FROM {schema}.queues ORDER BY name),
  ARRAY(SELECT priority FROM {schema}.queues ORDER BY name),
  s.apart, s.customers
FROM {schema}.books b CROSS JOIN (
  SELECT coalesce(array_agg(l.id ORDER BY l.id), '{}') AS subqueues,
    coalesce(array_agg(-greatest(coalesce(q.priority, 0), -2147483647) ORDER BY l.id), '{}') AS places,
    coalesce(array_agg(l.queue ORDER BY l.id), '{}') AS queues,
    coalesce(array_agg(p.task ORDER BY l.id), '{}') AS tasks,
    coalesce(array_agg(p.base IS NOT NULL ORDER BY l.id), '{}') AS apart,
    coalesce(array_agg(p.customer ORDER BY l.id), '{}') AS customers
  FROM {schema}.profiles p JOIN {schema}.subqueues l ON l.profile = p.id LEFT JOIN {schema}.queues q ON q.name = l.queue
  WHERE (p.id = ANY ($1::integer[]) OR p.base = ANY ($1)) AND ($2::text[] IS NULL OR l.queue = ANY ($2))
    AND q.paused IS NOT TRUE
) s
