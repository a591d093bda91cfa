-- The position of a job: how many are before it, how many of these have keys, whether there may be more; how many jobs
-- of its queue ended recently, since when, when the first of them was claimed. $1 queue; its position in its subqueue:
-- $2 rank, $3 arrival, $4 order number; $5 the moment, $6 how many are read, $7 statuses, $8 since when
WITH RECURSIVE mine AS MATERIALIZED (SELECT id AS subqueue FROM {schema}.subqueues WHERE queue = $1),
keys (subqueue, key) AS (
  -- From the first job of a key to the first of the next key, by the index: the jobs behind it cost nothing.
  SELECT m.subqueue, k.turn_key
  FROM mine m CROSS JOIN LATERAL (
    SELECT turn_key FROM {schema}.jobs WHERE stage = -1 AND subqueue = m.subqueue ORDER BY turn_key LIMIT 1
  ) k
  UNION ALL
  SELECT n.subqueue, k.turn_key
  FROM keys n CROSS JOIN LATERAL (
    SELECT turn_key FROM {schema}.jobs WHERE stage = -1 AND subqueue = n.subqueue AND turn_key > n.key
    ORDER BY turn_key LIMIT 1
  ) k
),
turns AS MATERIALIZED (SELECT subqueue, key FROM keys LIMIT $6::bigint + 1),
due AS MATERIALIZED (
  SELECT seq, subqueue, rank, available_at, turn_key, act_by
  FROM {schema}.jobs WHERE stage = 1 AND available_at <= $5 ORDER BY available_at LIMIT $6 + 1
),
before AS MATERIALIZED (
  SELECT turn_key, act_by FROM (
    SELECT NULL AS turn_key, j.act_by
    FROM mine m CROSS JOIN LATERAL (
      SELECT act_by FROM {schema}.jobs
      WHERE stage = 2 AND subqueue = m.subqueue AND (rank, arrived_at, seq) < ($2::smallint, $3::bigint, $4::bigint)
      ORDER BY rank, arrived_at, seq LIMIT $6 + 1
    ) j
    UNION ALL
    SELECT turn_key, act_by FROM due
    WHERE subqueue = ANY (ARRAY(SELECT subqueue FROM mine))
      AND (rank, available_at, seq) < ($2::smallint, $3::bigint, $4::bigint)
    UNION ALL
    SELECT k.key, j.act_by
    FROM turns k CROSS JOIN LATERAL (
      SELECT act_by FROM {schema}.jobs
      WHERE stage = -1 AND subqueue = k.subqueue AND turn_key = k.key
        AND (rank, arrived_at, seq) < ($2::smallint, $3::bigint, $4::bigint)
      ORDER BY rank, arrived_at, seq LIMIT $6 + 1
    ) j
  ) b
  LIMIT $6 + 1
),
-- The act_by of a queued job is its last moment to start: after it the job is not claimed any more.
ahead AS MATERIALIZED (SELECT turn_key FROM before WHERE act_by IS NULL OR act_by > $5 LIMIT $6),
recent AS MATERIALIZED (
  SELECT r.finished_at, r.assigned_at, r.subqueue
  FROM unnest($7::text[]) AS t (status) CROSS JOIN LATERAL (
    SELECT finished_at, assigned_at, subqueue FROM {schema}.jobs
    WHERE stage >= 4 AND status = t.status AND finished_at > $8
    ORDER BY finished_at DESC LIMIT $6 + 1
  ) r
  ORDER BY r.finished_at DESC LIMIT $6 + 1
),
span AS MATERIALIZED (
  SELECT CASE WHEN count(*) > $6 THEN min(finished_at) ELSE $8::bigint END AS since FROM recent
)
SELECT a.ahead, a.keyed,
  (SELECT count(*) > $6 FROM before) OR (SELECT count(*) > $6 FROM due) OR (SELECT count(*) > $6 FROM turns),
  d.ended, s.since, d.first
FROM (SELECT count(*) AS ahead, count(turn_key) AS keyed FROM ahead) a
CROSS JOIN span s
CROSS JOIN LATERAL (
  SELECT count(*) AS ended, min(r.assigned_at) AS first FROM recent r
  WHERE r.finished_at > s.since AND r.assigned_at IS NOT NULL AND r.subqueue = ANY (ARRAY(SELECT subqueue FROM mine))
) d
