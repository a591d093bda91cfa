-- Whether all picked jobs are given: none has expired, and none needs a free slot. True for most claims.
plain AS MATERIALIZED (
  SELECT (SELECT n FROM marks) = 0 AND NOT EXISTS (SELECT 1 FROM picked WHERE fragile) AS so
),
counted AS MATERIALIZED (
  SELECT p.*, row_number() OVER w AS pos, count(*) FILTER (WHERE NOT expired) OVER w - (NOT expired)::integer AS before
  FROM picked p WHERE NOT (SELECT so FROM plain) WINDOW w AS (ORDER BY place, rank, arrived_at, seq)
),
given AS (
  UPDATE {schema}.jobs j
  SET status = $10, stage = 3, rev = j.rev + 1, epoch = j.epoch + 1, worker = $1, claim = $2, assigned_at = greatest($11, j.updated_at),
    accepted_at = CASE WHEN $12::bigint IS NOT NULL THEN greatest($11, j.updated_at) END, act_by = $13,
    updated_at = greatest($11, j.updated_at), unnamed = 0
  -- By ctid, as the rows are locked. A row that moved between the reading and the lock is left for the next claim.
  WHERE j.ctid = ANY (ARRAY(
    SELECT ctid FROM picked WHERE (SELECT so FROM plain)
    UNION ALL
    SELECT ctid FROM counted
    -- The claim ends in front of the first fragile job for which no free slot is left.
    WHERE NOT expired AND before < $7
      AND pos < coalesce((SELECT min(pos) FROM counted WHERE fragile AND before >= $8), 2147483647)))
  RETURNING {claimed_head}
)
-- First a row with what the worker should know, then the jobs, without what this claim has just written on them.
SELECT alive, again, subqueues_rev, profiles_rev, settings_rev, next_due, (SELECT n FROM seen) AS seen, keyed,
  {claimed_nulls}
FROM head
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, {claimed}
FROM given j CROSS JOIN LATERAL (SELECT * FROM {schema}.bodies WHERE id = j.id LIMIT 1) b
