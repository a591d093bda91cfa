-- The pairs of task and requirements in which a customer has a stake: [[task, what it requires], …]. $1: "customer"
SELECT json_group_array(json_array(p.task, coalesce(b.requires, p.requires)))
FROM stakes s CROSS JOIN subqueues l ON l.id = s.subqueue CROSS JOIN profiles p ON p.id = l.profile
  LEFT JOIN profiles b ON b.id = p.base
WHERE s.customer = $1 ->> '$'
