-- Queued jobs that are in a common subqueue where customers have their own, or the other way round. $1 the queues in
-- which they have, $2 how many
SELECT {record}
FROM (
  SELECT l.id FROM {schema}.subqueues l JOIN {schema}.profiles p ON p.id = l.profile
  WHERE (p.base IS NOT NULL) <> (l.queue = ANY ($1::text[]))
) w CROSS JOIN LATERAL (
  (SELECT * FROM {schema}.jobs WHERE stage = 2 AND subqueue = w.id ORDER BY rank, arrived_at, seq LIMIT $2)
  UNION ALL
  (SELECT * FROM {schema}.jobs WHERE stage = -1 AND subqueue = w.id ORDER BY turn_key, rank, arrived_at, seq LIMIT $2)
) j CROSS JOIN LATERAL (SELECT * FROM {schema}.bodies WHERE id = j.id LIMIT 1) b
LIMIT $2
