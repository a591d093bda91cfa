-- The position of a job: how many are before it, how many of these have keys, whether there may be more; how many jobs
-- of its queue ended recently, since when, when the first of them was claimed. ?1 queue; its position in its subqueue:
-- ?2 rank, ?3 arrival, ?4 order number; ?5 the moment, ?6 how many are read, ?7 and ?8 statuses, ?9 since when.
WITH RECURSIVE keys (subqueue, key) AS (
  -- From the first job of a key to the first of the next key, by the index: the jobs behind it cost nothing.
  SELECT l.id, j.turn_key
  FROM subqueues l CROSS JOIN jobs j
    ON j.seq = (SELECT seq FROM jobs WHERE stage = -1 AND subqueue = l.id ORDER BY turn_key LIMIT 1)
  WHERE l.queue = ?1
  UNION ALL
  SELECT k.subqueue, j.turn_key
  FROM keys k CROSS JOIN jobs j ON j.seq = (
    SELECT seq FROM jobs WHERE stage = -1 AND subqueue = k.subqueue AND turn_key > k.key ORDER BY turn_key LIMIT 1)
  LIMIT ?6 + 1
),
due AS MATERIALIZED (
  SELECT seq, subqueue, rank, available_at, turn_key, act_by
  FROM jobs WHERE stage = 1 AND available_at <= ?5 ORDER BY available_at LIMIT ?6 + 1
),
before AS MATERIALIZED (
  SELECT NULL AS turn_key, j.act_by
  FROM subqueues l CROSS JOIN jobs j ON j.stage = 2 AND j.subqueue = l.id
    AND (j.rank, j.arrived_at, j.seq) < (?2, ?3, ?4)
  WHERE l.queue = ?1
  UNION ALL
  SELECT d.turn_key, d.act_by
  FROM due d CROSS JOIN subqueues l ON l.id = d.subqueue AND l.queue = ?1
  WHERE (d.rank, d.available_at, d.seq) < (?2, ?3, ?4)
  UNION ALL
  SELECT k.key, j.act_by
  FROM keys k CROSS JOIN jobs j
    ON j.stage = -1 AND j.subqueue = k.subqueue AND j.turn_key = k.key AND (j.rank, j.arrived_at, j.seq) < (?2, ?3, ?4)
  LIMIT ?6 + 1
),
-- The act_by of a queued job is its last moment to start: after it the job is not claimed any more.
ahead AS MATERIALIZED (SELECT turn_key FROM before WHERE act_by IS NULL OR act_by > ?5 LIMIT ?6 + 0),
recent AS MATERIALIZED (
  SELECT * FROM (
    SELECT * FROM (
      SELECT seq, finished_at, subqueue FROM jobs WHERE stage >= 4 AND status = ?7 AND finished_at > ?9
      ORDER BY finished_at DESC LIMIT ?6 + 1)
    UNION ALL
    SELECT * FROM (
      SELECT seq, finished_at, subqueue FROM jobs WHERE stage >= 4 AND status = ?8 AND finished_at > ?9
      ORDER BY finished_at DESC LIMIT ?6 + 1)
  )
  ORDER BY finished_at DESC LIMIT ?6 + 1
),
span AS MATERIALIZED (SELECT iif(count(*) > ?6, min(finished_at), ?9) AS since FROM recent),
done AS MATERIALIZED (
  SELECT j.assigned_at
  FROM span s CROSS JOIN recent r ON r.finished_at > s.since
    CROSS JOIN subqueues l ON l.id = r.subqueue AND l.queue = ?1
    CROSS JOIN jobs j ON j.seq = r.seq
  WHERE j.assigned_at IS NOT NULL
)
SELECT
  (SELECT count(*) FROM ahead), (SELECT count(turn_key) FROM ahead),
  (SELECT count(*) > ?6 FROM before) OR (SELECT count(*) > ?6 FROM due) OR (SELECT count(*) > ?6 FROM keys),
  (SELECT count(*) FROM done), (SELECT since FROM span), (SELECT min(assigned_at) FROM done)
