-- The subqueues that a request serves and that are not empty: their customers, whether they have jobs with keys, and
-- the first of those without. ?1 its number
SELECT l.id, l.queue, p.task, p.customer, o.keyed, j.seq, j.rank, j.arrived_at, j.unstarted_losses, j.act_by
FROM (
  SELECT subqueue,
    (SELECT seq FROM jobs WHERE stage = 2 AND subqueue = s.subqueue ORDER BY rank, arrived_at, seq LIMIT 1) AS first,
    EXISTS (SELECT 1 FROM heads WHERE subqueue = s.subqueue AND rank IS NOT NULL) AS keyed
  FROM served s WHERE ask = +?1) o
CROSS JOIN subqueues l ON l.id = o.subqueue CROSS JOIN profiles p ON p.id = l.profile
LEFT JOIN jobs j ON j.seq = o.first
WHERE o.first IS NOT NULL OR o.keyed
