-- The held jobs by queue, task and key: how many.
SELECT l.queue, p.task, h.turn_key, h.jobs
FROM (SELECT subqueue, turn_key, count(*) AS jobs FROM jobs WHERE stage = 3 GROUP BY 1, 2) h
CROSS JOIN subqueues l ON l.id = h.subqueue CROSS JOIN profiles p ON p.id = l.profile
