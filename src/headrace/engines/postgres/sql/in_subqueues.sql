-- The first jobs of each subqueue, and of the first keys in it: index of the subqueue, key, head of the key (rank, at,
-- seq), when the key last took its turn; then seq, rank, arrived_at, losses, act_by of a job, all null for a key
-- without jobs. $1 subqueues; for each subqueue: $2 how many jobs of it, $3 the maximum jobs of a key, $4 how many
-- keys; $5 how many jobs of all keys together
WITH served AS MATERIALIZED (
  SELECT * FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::integer[]) WITH ORDINALITY
    AS t (subqueue, depth, most, heads, place)
),
keys AS MATERIALIZED (
  SELECT s.place, s.subqueue, s.most, h.*
  FROM served s CROSS JOIN LATERAL (
    SELECT key, rank, at, seq, last FROM {schema}.heads WHERE subqueue = s.subqueue AND rank IS NOT NULL
    ORDER BY rank, at, seq LIMIT s.heads
  ) h
),
fair AS MATERIALIZED (SELECT ($5::bigint + count(*) - 1) / greatest(count(*), 1) AS share FROM keys)
SELECT s.place, NULL AS key, NULL::smallint AS stands, NULL::bigint AS at, NULL::bigint AS of, NULL::bigint AS last, m.*
FROM served s CROSS JOIN LATERAL (
  SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs WHERE stage = 2 AND subqueue = s.subqueue
  ORDER BY rank, arrived_at, seq LIMIT s.depth
) m
UNION ALL
SELECT k.place, k.key, k.rank, k.at, k.seq, k.last, m.*
FROM keys k LEFT JOIN LATERAL (
  SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM {schema}.jobs
  WHERE stage = -1 AND subqueue = k.subqueue AND turn_key = k.key
  -- One more than is wanted: the head of the key moves there when the others are given.
  ORDER BY rank, arrived_at, seq LIMIT least(k.most, (SELECT share FROM fair)) + 1
) m ON true
