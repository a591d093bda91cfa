-- The lines of these profiles in queues that are asked for and not paused, with their places, queues and tasks; the
-- queues that have a priority; and the revs for which all that is valid. $1 profiles, $2 queues
SELECT b.lines_rev, b.settings_rev,
  ARRAY(SELECT l.id FROM {schema}.lines l LEFT JOIN {schema}.queues q ON q.name = l.queue
    WHERE l.profile = ANY ($1::integer[]) AND ($2::text[] IS NULL OR l.queue = ANY ($2)) AND q.paused IS NOT TRUE
    ORDER BY l.id),
  ARRAY(SELECT -greatest(coalesce(q.priority, 0), -2147483647) FROM {schema}.lines l LEFT JOIN {schema}.queues q ON q.name = l.queue
    WHERE l.profile = ANY ($1::integer[]) AND ($2::text[] IS NULL OR l.queue = ANY ($2)) AND q.paused IS NOT TRUE
    ORDER BY l.id),
  ARRAY(SELECT l.queue FROM {schema}.lines l LEFT JOIN {schema}.queues q ON q.name = l.queue
    WHERE l.profile = ANY ($1::integer[]) AND ($2::text[] IS NULL OR l.queue = ANY ($2)) AND q.paused IS NOT TRUE
    ORDER BY l.id),
  ARRAY(SELECT p.task FROM {schema}.lines l JOIN {schema}.profiles p ON p.id = l.profile
    LEFT JOIN {schema}.queues q ON q.name = l.queue
    WHERE l.profile = ANY ($1::integer[]) AND ($2::text[] IS NULL OR l.queue = ANY ($2)) AND q.paused IS NOT TRUE
    ORDER BY l.id),
  ARRAY(SELECT name FROM {schema}.queues ORDER BY name),
  ARRAY(SELECT priority FROM {schema}.queues ORDER BY name)
FROM {schema}.books b
