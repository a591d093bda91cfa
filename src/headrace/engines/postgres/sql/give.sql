-- Give these jobs, unless others are taking them, and write the heads of keys. $1 seqs, $2 worker, $3 request, $4
-- status, $5 the moment, $6 accepted_at, $7 act_by; of keys: $8 tasks, $9 keys, $10 subqueues; ranks, arrivals and seqs
-- of their first jobs as $11, $12 and $13; $14 whether they took their turn; $15 the subqueue in which each job was
-- seen: one that was moved since is left; all but $2 to $7 as the texts of arrays
WITH picked AS MATERIALIZED (
  SELECT j.ctid FROM {schema}.jobs j JOIN unnest($1::text::bigint[], $15::text::integer[]) AS t (seq, subqueue)
    ON t.seq = j.seq
  WHERE j.seq = ANY ($1::text::bigint[]) AND j.stage IN (2, -1) AND j.subqueue = t.subqueue
  ORDER BY j.seq FOR UPDATE OF j SKIP LOCKED
),
given AS (
  UPDATE {schema}.jobs j
  SET status = $4, stage = 3, rev = j.rev + 1, epoch = j.epoch + 1, worker = $2, claim = $3, assigned_at = greatest($5, j.updated_at),
    accepted_at = CASE WHEN $6::bigint IS NOT NULL THEN greatest($5, j.updated_at) END, act_by = $7,
    updated_at = greatest($5, j.updated_at), unnamed = 0
  WHERE j.ctid = ANY (ARRAY(SELECT ctid FROM picked))
  RETURNING {claimed_head}
),
stood AS (
  {stand}
)
SELECT {claimed}
FROM given j CROSS JOIN LATERAL (SELECT * FROM {schema}.bodies WHERE id = j.id LIMIT 1) b
