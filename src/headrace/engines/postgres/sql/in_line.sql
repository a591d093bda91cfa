-- The first jobs of each line, and of each key in it: place of the line, key, when that last had its turn, seq, rank,
-- arrived_at, losses, act_by. $1 lines, $2 how many of a line, $3 how many of a key in each, $4 their tasks
WITH RECURSIVE served AS MATERIALIZED (
  SELECT * FROM unnest($1::integer[], $3::integer[], $4::text[]) WITH ORDINALITY AS t (line, most, task, place)
),
keys (place, line, most, task, key) AS (
  -- From key to key by the index: what stands behind a key's first jobs costs nothing.
  SELECT s.place, s.line, s.most, s.task, (SELECT min(turn_key) FROM {schema}.jobs WHERE stage = -1 AND line = s.line)
  FROM served s
  UNION ALL
  SELECT k.place, k.line, k.most, k.task,
    (SELECT min(turn_key) FROM {schema}.jobs WHERE stage = -1 AND line = k.line AND turn_key > k.key)
  FROM keys k WHERE k.key IS NOT NULL
)
SELECT s.place, NULL AS key, NULL::bigint AS last, m.*
FROM served s CROSS JOIN LATERAL (
  SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs WHERE stage = 2 AND line = s.line
  ORDER BY rank, arrived_at, seq LIMIT $2
) m
UNION ALL
SELECT k.place, k.key, t.last, m.*
FROM keys k LEFT JOIN {schema}.turns_taken t ON t.task = k.task AND t.key = k.key CROSS JOIN LATERAL (
  SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs
  WHERE stage = -1 AND line = k.line AND turn_key = k.key
  ORDER BY rank, arrived_at, seq LIMIT k.most
) m
WHERE k.key IS NOT NULL
