-- The live profile of a place, and its subqueue: [profile, subqueue or null]. $1: [queue, task, what the profile
-- requires] Not that of a customer if its base is missing: then both are made again.
SELECT json_array(p.id, l.id) FROM profiles p LEFT JOIN subqueues l ON l.queue = $1 ->> 0 AND l.profile = p.id
WHERE p.task = $1 ->> 1 AND p.requires = $1 ->> 2 AND p.live
  AND (p.base IS NULL OR EXISTS (SELECT 1 FROM profiles b WHERE b.id = p.base AND b.live))
