-- Jobs by queue, status and whether they are headrace's own, as seen at a moment, without those that completed or were cancelled: each kind by the index
-- that has no others. $1 the moment, $2 the status failed, $3 the statuses of those that are not queued yet
SELECT l.queue, c.status, sum(c.jobs)::bigint, min(c.oldest), {own_task}
FROM (
  SELECT subqueue, 'queued' AS status, count(*) AS jobs, min(arrived_at) AS oldest
  FROM {schema}.jobs WHERE stage = 2 GROUP BY 1
  UNION ALL
  SELECT subqueue, 'queued', count(*), min(arrived_at) FROM {schema}.jobs WHERE stage = -1 GROUP BY 1
  UNION ALL
  SELECT subqueue, CASE WHEN available_at <= $1 THEN 'queued' ELSE status END, count(*),
    min(CASE WHEN available_at <= $1 THEN available_at ELSE arrived_at END)
  FROM {schema}.jobs WHERE stage = 1 GROUP BY 1, 2
  UNION ALL
  SELECT subqueue, status, count(*), min(arrived_at) FROM {schema}.jobs WHERE stage = 3 GROUP BY 1, 2
  -- The condition of the index word for word, and one status at a time, so that the index alone is read. A status is of
  -- one stage.
  UNION ALL
  SELECT p.* FROM unnest($3::text[]) AS s (status) CROSS JOIN LATERAL (
    SELECT subqueue, status, count(*), min(arrived_at) FROM {schema}.jobs
    WHERE stage IN (0, 5) AND status = s.status GROUP BY 1, 2
  ) p
  UNION ALL
  SELECT subqueue, status, count(*), NULL FROM {schema}.jobs WHERE stage IN (0, 5) AND status = $2 GROUP BY 1, 2
) c JOIN {schema}.subqueues l ON l.id = c.subqueue JOIN {schema}.profiles p ON p.id = l.profile
GROUP BY 1, 2, 5
