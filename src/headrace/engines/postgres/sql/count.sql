-- Jobs by queue, status and whether they are headrace's own, as seen at a moment. $1 the moment
SELECT l.queue, c.status, sum(c.jobs)::bigint, min(c.oldest), {own_task}
FROM (
  SELECT subqueue, CASE WHEN stage = 1 AND available_at <= $1 THEN 'queued' ELSE status END AS status, count(*) AS jobs,
    min(CASE WHEN stage >= 4 THEN NULL WHEN stage = 1 AND available_at <= $1 THEN available_at ELSE arrived_at END)
      AS oldest
  FROM {schema}.jobs GROUP BY 1, 2
) c JOIN {schema}.subqueues l ON l.id = c.subqueue JOIN {schema}.profiles p ON p.id = l.profile
GROUP BY 1, 2, 5
