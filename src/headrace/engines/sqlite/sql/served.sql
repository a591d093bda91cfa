-- The subqueues that a request serves. ?1 its number
SELECT l.id, l.queue, p.task
FROM served s CROSS JOIN subqueues l ON l.id = s.subqueue CROSS JOIN profiles p ON p.id = l.profile WHERE s.ask = +?1
