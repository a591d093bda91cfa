-- The subqueues of customers that a request may serve, and the customers. ?1 profiles, ?2 queues, null for
-- all, ?3 paused tasks
SELECT l.id, p.customer FROM subqueues l CROSS JOIN profiles p ON p.id = l.profile
WHERE p.base IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR l.queue IN (SELECT value FROM json_each(?2)))
  AND p.task NOT IN (SELECT value FROM json_each(?3))
