counted AS MATERIALIZED (
  SELECT p.*, row_number() OVER w AS pos, count(*) FILTER (WHERE NOT expired) OVER w - (NOT expired)::integer AS before
  FROM picked p WINDOW w AS (ORDER BY place, rank, arrived_at, seq)
),
given AS (
  UPDATE {schema}.jobs j
  SET status = $10, stage = 3, rev = j.rev + 1, epoch = j.epoch + 1, worker = $1, claim = $2, assigned_at = $11,
    accepted_at = $12, act_by = $13, updated_at = $11, unnamed = 0
  WHERE j.seq = ANY (ARRAY(
    SELECT seq FROM counted
    -- The claim ends in front of the first fragile job for which no free slot is left.
    WHERE NOT expired AND before < $7
      AND pos < coalesce((SELECT min(pos) FROM counted WHERE fragile AND before >= $8), 2147483647)))
  RETURNING j.*
)
SELECT head.alive, head.again, head.lines_rev, head.profiles_rev, head.settings_rev, head.next_due, seen.n,
  {record}
FROM head CROSS JOIN seen LEFT JOIN (given j JOIN {schema}.bodies b ON b.seq = j.seq) ON true
