-- The first jobs of each line, and of each key in it: place of the line, key, seq, rank, arrived_at, losses, act_by. Then,
-- once for each line: its place, which of its keys had a turn, and when. $1 lines, $2 how many of a line, $3 how many
-- of a key in each, at most, $4 their tasks, $5 how many times its share of $2 is read of a key, $6 of which lines one key
-- is enough
WITH RECURSIVE served AS MATERIALIZED (
  SELECT * FROM unnest($1::integer[]) WITH ORDINALITY AS t (line, place)
),
keys (place, line, key, seq, rank, arrived_at, losses, act_by) AS (
  -- From the first job of a key to that of the next, by the index: what stands behind it costs nothing.
  SELECT s.place, s.line, m.*
  FROM served s CROSS JOIN LATERAL (
    SELECT turn_key, seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs
    WHERE stage = -1 AND line = s.line
    ORDER BY turn_key, rank, arrived_at, seq LIMIT 1
  ) m
  UNION ALL
  SELECT k.place, k.line, m.*
  FROM keys k CROSS JOIN LATERAL (
    SELECT turn_key, seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs
    WHERE stage = -1 AND line = k.line AND turn_key > k.key
    ORDER BY turn_key, rank, arrived_at, seq LIMIT 1
  ) m
  WHERE NOT ($6::boolean[])[k.place]
),
fair AS MATERIALIZED (SELECT ($2::bigint * $5::bigint + count(*) - 1) / greatest(count(*), 1) AS share FROM keys)
SELECT s.place, NULL AS key, m.*, NULL::text[] AS keys, NULL::bigint[] AS last
FROM served s CROSS JOIN LATERAL (
  SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs WHERE stage = 2 AND line = s.line
  ORDER BY rank, arrived_at, seq LIMIT $2
) m
UNION ALL
SELECT k.place, k.key, k.seq, k.rank, k.arrived_at, k.losses, k.act_by, NULL, NULL FROM keys k
UNION ALL
SELECT k.place, k.key, m.*, NULL, NULL
FROM keys k CROSS JOIN LATERAL (
  SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs
  WHERE stage = -1 AND line = k.line AND turn_key = k.key
    AND (rank, arrived_at, seq) > (k.rank, k.arrived_at, k.seq)
  ORDER BY rank, arrived_at, seq LIMIT least(($3::integer[])[k.place], (SELECT share FROM fair)) - 1
) m
WHERE ($3::integer[])[k.place] > 1 AND (SELECT share FROM fair) > 1
UNION ALL
-- All keys of a line at once: in one walk over the index, where looking up each costs as much as finding its job.
SELECT k.place, NULL, NULL, NULL, NULL, NULL, NULL, t.keys, t.last
FROM (SELECT place, array_agg(key) AS keys FROM keys GROUP BY place) k CROSS JOIN LATERAL (
  SELECT array_agg(key) AS keys, array_agg(last) AS last FROM {schema}.turns_taken
  WHERE task = ($4::text[])[k.place] AND key = ANY (k.keys)
) t
WHERE t.keys IS NOT NULL
