-- Store which subqueues a request serves. ?1 its number, ?2 profiles, ?3 queues, null for all, ?4 paused tasks
INSERT INTO served (ask, subqueue)
SELECT ?1, l.id FROM subqueues l CROSS JOIN profiles p ON p.id = l.profile
WHERE coalesce(p.base, p.id) IN (SELECT value FROM json_each(?2))
  AND (?3 IS NULL OR l.queue IN (SELECT value FROM json_each(?3)))
  AND p.task NOT IN (SELECT value FROM json_each(?4))
