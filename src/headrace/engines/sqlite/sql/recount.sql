-- Remove the stakes of a customer for which it has no live job of the task and requirements. $1: "customer"
DELETE FROM stakes WHERE customer = $1 ->> '$' AND subqueue NOT IN (
  SELECT l.id FROM subqueues l CROSS JOIN profiles p ON p.id = l.profile WHERE coalesce(p.base, p.id) IN (
    SELECT coalesce(q.base, q.id)
    FROM labels a CROSS JOIN jobs j ON j.seq = a.seq CROSS JOIN subqueues m ON m.id = j.subqueue
      CROSS JOIN profiles q ON q.id = m.profile
    WHERE a.label = 'c' || ($1 ->> '$') AND j.stage < 4))
