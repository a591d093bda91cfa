SELECT l.queue AS queue, c.status AS status, sum(c.jobs) AS jobs, min(c.oldest) AS oldest, {own_task} AS own
FROM (
  SELECT subqueue, 'queued' AS status, count(*) AS jobs, min(arrived_at) AS oldest
  FROM jobs WHERE stage = 2 GROUP BY subqueue
  UNION ALL
  SELECT subqueue, 'queued', count(*), min(arrived_at) FROM jobs WHERE stage = -1 GROUP BY subqueue
  UNION ALL
  SELECT subqueue, 'queued', count(*), min(available_at)
  FROM jobs WHERE stage = 1 AND available_at <= ?1 GROUP BY subqueue
  UNION ALL
  SELECT subqueue, status, count(*), min(arrived_at)
  FROM jobs WHERE stage = 1 AND available_at > ?1 GROUP BY subqueue, status
  UNION ALL
  SELECT subqueue, status, count(*), min(arrived_at) FROM jobs WHERE stage = 0 GROUP BY subqueue, status
  UNION ALL
  SELECT subqueue, status, count(*), min(arrived_at)
  FROM jobs WHERE stage = 3 GROUP BY subqueue, status
  UNION ALL
  SELECT subqueue, status, count(*), NULL
  FROM jobs WHERE stage >= 4{of_ended} GROUP BY subqueue, status
) c CROSS JOIN subqueues l ON l.id = c.subqueue CROSS JOIN profiles p ON p.id = l.profile
GROUP BY l.queue, c.status, own
