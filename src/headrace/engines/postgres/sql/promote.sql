-- Queue deferred jobs that are due, the longest due first. $1 the moment, $2 how many
WITH promoted AS (
  UPDATE {schema}.jobs
  SET status = 'queued', stage = CASE WHEN turn_key IS NULL THEN 2 ELSE -1 END, arrived_at = available_at, rev = rev + 1,
    updated_at = $1
  WHERE seq = ANY (ARRAY(
    SELECT seq FROM {schema}.jobs WHERE stage = 1 AND available_at <= $1
    ORDER BY available_at LIMIT $2 FOR UPDATE SKIP LOCKED))
  RETURNING seq, subqueue, turn_key, rank, arrived_at
),
in_turn AS (
  INSERT INTO {schema}.arrivals (subqueue, key, rank, arrived_at, seq)
  SELECT subqueue, turn_key, rank, min(arrived_at), min(seq) FROM promoted WHERE turn_key IS NOT NULL GROUP BY 1, 2, 3
)
SELECT count(*) FROM promoted
