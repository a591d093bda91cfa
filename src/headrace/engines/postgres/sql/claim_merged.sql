picked AS MATERIALIZED (
  SELECT j.seq, r.place, j.rank, j.arrived_at, j.unstarted_losses >= $9 AS fragile,
    coalesce(j.act_by <= $5, false) AS expired
  FROM read_{level} r JOIN {schema}.jobs j ON j.seq = r.seq
  WHERE j.stage = 2
  ORDER BY r.place, r.rank, r.arrived_at, r.seq
  LIMIT $7 + (SELECT n FROM marks)
  FOR UPDATE OF j SKIP LOCKED
),
seen AS MATERIALIZED (SELECT count(*) AS n FROM read_{level}),
