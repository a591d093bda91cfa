-- How many profiles are live in which no customer has a stake.
SELECT count(*) FROM {schema}.profiles WHERE live AND coalesce(base, id) NOT IN (
  SELECT coalesce(q.base, q.id)
  FROM {schema}.stakes s JOIN {schema}.subqueues l ON l.id = s.subqueue JOIN {schema}.profiles q ON q.id = l.profile)
