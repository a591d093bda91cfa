-- Give these jobs, unless others are just taking them, and remember that these keys had their turn. $1 seqs, $2 worker, $3
-- request, $4 status, $5 the moment, $6 accepted_at, $7 act_by; $8 tasks, and $9 the keys of each, as the text of an array,
-- that had a turn before; $10 and $11 tasks and keys that may have had none
WITH picked AS MATERIALIZED (
  SELECT ctid FROM {schema}.jobs WHERE seq = ANY ($1::bigint[]) AND stage IN (2, -1) ORDER BY seq FOR UPDATE SKIP LOCKED
),
given AS (
  UPDATE {schema}.jobs j
  SET status = $4, stage = 3, rev = j.rev + 1, epoch = j.epoch + 1, worker = $2, claim = $3, assigned_at = $5,
    accepted_at = $6, act_by = $7, updated_at = $5, unnamed = 0
  WHERE j.ctid = ANY (ARRAY(SELECT ctid FROM picked))
  RETURNING j.seq, j.id, j.available_at, j.arrived_at, j.rev, j.epoch, j.unstarted_losses, j.progress, j.state, j.result,
    j.error
),
turned AS (
  UPDATE {schema}.turns_taken w SET last = greatest(w.last, $5)
  FROM unnest($8::text[], $9::text[]) AS t (task, keys) WHERE w.task = t.task AND w.key = ANY (t.keys::text[])
),
first_turned AS (
  INSERT INTO {schema}.turns_taken (task, key, last)
  SELECT task, key, $5 FROM unnest($10::text[], $11::text[]) AS t (task, key) ORDER BY task, key
  ON CONFLICT (task, key) DO UPDATE SET last = greatest(turns_taken.last, excluded.last)
)
SELECT j.seq, b.id, j.available_at, j.arrived_at, j.rev, j.epoch, j.unstarted_losses, j.progress, j.state, b.payload, b.spec,
  j.result, j.error
FROM given j CROSS JOIN LATERAL (SELECT * FROM {schema}.bodies WHERE id = j.id LIMIT 1) b
