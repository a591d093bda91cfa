-- Row by row, in order, and only until there are enough: each row that is read here is locked.
picked AS MATERIALIZED (
  SELECT l.ctid, r.seq, r.place, r.rank, r.arrived_at, l.fragile, l.expired
  FROM read_{level} r CROSS JOIN LATERAL (
    SELECT j.ctid, j.unstarted_losses >= $9 AS fragile, coalesce(j.act_by <= $5, false) AS expired
    -- stage + 0, to use the primary key: on a table that was empty when this was planned, the planner rates the index
    -- of queued jobs as equal.
    FROM {schema}.jobs j WHERE j.seq = r.seq AND j.stage + 0 = 2
    FOR UPDATE SKIP LOCKED
  ) l
  LIMIT $7 + (SELECT n FROM marks)
),
seen AS MATERIALIZED (SELECT count(*) AS n FROM read_{level}),
