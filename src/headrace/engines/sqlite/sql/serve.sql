-- Store which subqueues a request serves.
INSERT INTO served (ask, subqueue)
SELECT ?1, l.id FROM subqueues l CROSS JOIN profiles p ON p.id = l.profile
WHERE coalesce(p.base, p.id) IN (SELECT value FROM json_each(?2))
  AND (?3 IS NULL OR l.queue IN (SELECT value FROM json_each(?3)))
