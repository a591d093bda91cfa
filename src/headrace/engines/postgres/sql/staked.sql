-- The pairs of task and requirements in which a customer has a stake. $1 the customer → task, what it requires
SELECT p.task, coalesce(b.requires, p.requires)
FROM {schema}.stakes s JOIN {schema}.subqueues l ON l.id = s.subqueue JOIN {schema}.profiles p ON p.id = l.profile
  LEFT JOIN {schema}.profiles b ON b.id = p.base
WHERE s.customer = $1
