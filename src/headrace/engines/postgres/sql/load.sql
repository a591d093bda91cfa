-- The load: queue, task, requirements; how many are queued, whether there may be more, the earliest arrival; how many are
-- held; how many ended, and how many minutes ago; from when on those are counted. $1 the moment, $2 how many of a
-- subqueue are read, $3 how many that ended, $4 statuses, $5 since when
WITH due AS MATERIALIZED (
  SELECT subqueue, available_at FROM {schema}.jobs
  WHERE stage = 1 AND available_at <= $1 ORDER BY available_at LIMIT $2::bigint + 1
),
recent AS MATERIALIZED (
  SELECT r.finished_at, r.assigned_at, r.subqueue
  FROM unnest($4::text[]) AS t (status) CROSS JOIN LATERAL (
    SELECT finished_at, assigned_at, subqueue FROM {schema}.jobs
    WHERE stage >= 4 AND status = t.status AND finished_at > $5
    ORDER BY finished_at DESC LIMIT $3::bigint + 1
  ) r
  ORDER BY r.finished_at DESC LIMIT $3 + 1
),
span AS MATERIALIZED (
  SELECT CASE WHEN count(*) > $3 THEN min(finished_at) ELSE $5::bigint END AS since FROM recent
)
SELECT l.queue, p.task, p.requires, c.queued, c.more, c.oldest, c.held, c.ended, c.ago, s.since
FROM (
  -- A subqueue is read once, for its number and its first arrival, and no further than needed.
  SELECT l.id AS subqueue, least(w.jobs, $2) AS queued, w.jobs > $2 AS more, w.oldest, 0::bigint AS held,
    0::bigint AS ended, 0::bigint AS ago
  FROM {schema}.subqueues l CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(arrived_at) AS oldest FROM (
      SELECT arrived_at FROM {schema}.jobs WHERE stage = 2 AND subqueue = l.id
      ORDER BY rank, arrived_at, seq LIMIT $2 + 1
    ) j
  ) w WHERE w.jobs > 0
  UNION ALL
  SELECT l.id, least(w.jobs, $2), w.jobs > $2, w.oldest, 0, 0, 0
  FROM {schema}.subqueues l CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(arrived_at) AS oldest FROM (
      SELECT arrived_at FROM {schema}.jobs WHERE stage = -1 AND subqueue = l.id
      ORDER BY turn_key, rank, arrived_at, seq LIMIT $2 + 1
    ) j
  ) w WHERE w.jobs > 0
  UNION ALL
  SELECT subqueue, count(*), (SELECT count(*) FROM due) > $2, min(available_at), 0, 0, 0 FROM due GROUP BY 1
  UNION ALL
  SELECT subqueue, 0, false, NULL, count(*), 0, 0 FROM {schema}.jobs WHERE stage = 3 GROUP BY 1
  UNION ALL
  SELECT r.subqueue, 0, false, NULL, 0, count(*), greatest(0, ($1 - r.finished_at) / 60000000)
  FROM span s JOIN recent r ON r.finished_at > s.since
  WHERE r.assigned_at IS NOT NULL
  GROUP BY r.subqueue, greatest(0, ($1 - r.finished_at) / 60000000)
) c JOIN {schema}.subqueues l ON l.id = c.subqueue JOIN {schema}.profiles p ON p.id = l.profile CROSS JOIN span s
