-- One subqueue, in its order; jobs that others are taking are skipped. $7 n, $8 free, $9 fragile after, $14 the
-- subqueue. The act_by of a queued job is its last moment to start.
picked AS MATERIALIZED (
  SELECT j.ctid, j.seq, 0 AS place, j.rank, j.arrived_at, j.unstarted_losses >= $9 AS fragile,
    coalesce(j.act_by <= $5, false) AS expired
  FROM {schema}.jobs j
  WHERE j.stage = 2 AND j.subqueue = $14 AND (j.act_by IS NULL OR j.act_by > $5 OR j.unstarted_losses >= $9)
  ORDER BY j.rank, j.arrived_at, j.seq
  LIMIT CASE WHEN (SELECT ahead FROM go) THEN $7 + (SELECT n FROM marks) ELSE 0 END
  FOR UPDATE SKIP LOCKED
),
seen AS MATERIALIZED (SELECT 0 AS n),
