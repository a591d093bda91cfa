-- The load: queue, task, requirements; how many are queued, whether there may be more, the earliest arrival; how many are
-- held; how many ended, and how many minutes ago; from when on those are counted. ?1 the moment, ?2 how many of a
-- subqueue are read, ?3 how many that ended, ?4 and ?5 statuses, ?6 since when
WITH due AS MATERIALIZED (
  SELECT subqueue, available_at FROM jobs WHERE stage = 1 AND available_at <= ?1 ORDER BY available_at LIMIT ?2 + 1
),
recent AS MATERIALIZED (
  SELECT * FROM (
    SELECT * FROM (
      SELECT seq, finished_at, subqueue FROM jobs WHERE stage >= 4 AND status = ?4 AND finished_at > ?6
      ORDER BY finished_at DESC LIMIT ?3 + 1)
    UNION ALL
    SELECT * FROM (
      SELECT seq, finished_at, subqueue FROM jobs WHERE stage >= 4 AND status = ?5 AND finished_at > ?6
      ORDER BY finished_at DESC LIMIT ?3 + 1)
  )
  ORDER BY finished_at DESC LIMIT ?3 + 1
),
span AS MATERIALIZED (SELECT iif(count(*) > ?3, min(finished_at), ?6) AS since FROM recent),
-- A subqueue is read once, for its number and its first arrival, and no further than needed.
waiting AS MATERIALIZED (
  SELECT l.id AS subqueue, (
    SELECT json_array(count(*), min(arrived_at)) FROM (
      SELECT arrived_at FROM jobs WHERE stage = 2 AND subqueue = l.id ORDER BY rank, arrived_at, seq LIMIT ?2 + 1)
  ) AS counted
  FROM subqueues l
  UNION ALL
  SELECT l.id, (
    SELECT json_array(count(*), min(arrived_at)) FROM (
      SELECT arrived_at FROM jobs WHERE stage = -1 AND subqueue = l.id ORDER BY turn_key, rank, arrived_at LIMIT ?2 + 1)
  )
  FROM subqueues l
)
SELECT l.queue, p.task, p.requires, c.queued, c.more, c.oldest, c.held, c.ended, c.ago, (SELECT since FROM span)
FROM (
  SELECT subqueue, min(counted ->> 0, ?2) AS queued, counted ->> 0 > ?2 AS more, counted ->> 1 AS oldest, 0 AS held,
    0 AS ended, 0 AS ago
  FROM waiting WHERE counted ->> 0 > 0
  UNION ALL
  SELECT subqueue, count(*), (SELECT count(*) FROM due) > ?2, min(available_at), 0, 0, 0 FROM due GROUP BY subqueue
  UNION ALL
  SELECT subqueue, 0, 0, NULL, count(*), 0, 0 FROM jobs WHERE stage = 3 GROUP BY subqueue
  UNION ALL
  SELECT r.subqueue, 0, 0, NULL, 0, count(*), max(0, (?1 - r.finished_at) / 60000000)
  FROM span s CROSS JOIN recent r ON r.finished_at > s.since CROSS JOIN jobs j ON j.seq = r.seq
  WHERE j.assigned_at IS NOT NULL
  GROUP BY r.subqueue, max(0, (?1 - r.finished_at) / 60000000)
) c CROSS JOIN subqueues l ON l.id = c.subqueue CROSS JOIN profiles p ON p.id = l.profile
