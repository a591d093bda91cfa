-- Queued jobs that are in a common subqueue where customers have their own, or the other way round. ?1 the queues in
-- which they have, ?2 how many
SELECT j.seq
FROM subqueues l CROSS JOIN profiles p ON p.id = l.profile CROSS JOIN jobs j
  ON j.subqueue = l.id AND j.stage = 2 OR j.subqueue = l.id AND j.stage = -1
WHERE (p.base IS NOT NULL) <> (l.queue IN (SELECT value FROM json_each(?1))) LIMIT ?2 + 0
