-- The first jobs of each line, and of each key in it: place of the line, key, seq, rank, arrived_at, losses, act_by.
-- $1 lines, $2 how many of a line, $3 how many of a key in each
WITH RECURSIVE served AS MATERIALIZED (
  SELECT * FROM unnest($1::integer[], $3::integer[]) WITH ORDINALITY AS t (line, most, place)
),
keys (place, line, most, key) AS (
  -- From key to key by the index: what stands behind a key's first jobs costs nothing.
  SELECT s.place, s.line, s.most, (SELECT min(turn_key) FROM {schema}.jobs WHERE stage = -1 AND line = s.line)
  FROM served s
  UNION ALL
  SELECT k.place, k.line, k.most,
    (SELECT min(turn_key) FROM {schema}.jobs WHERE stage = -1 AND line = k.line AND turn_key > k.key)
  FROM keys k WHERE k.key IS NOT NULL
)
SELECT s.place, NULL AS key, m.*
FROM served s CROSS JOIN LATERAL (
  SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs WHERE stage = 2 AND line = s.line
  ORDER BY rank, arrived_at, seq LIMIT $2
) m
UNION ALL
SELECT k.place, k.key, m.*
FROM keys k CROSS JOIN LATERAL (
  SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs
  WHERE stage = -1 AND line = k.line AND turn_key = k.key
  ORDER BY rank, arrived_at, seq LIMIT k.most
) m
WHERE k.key IS NOT NULL
