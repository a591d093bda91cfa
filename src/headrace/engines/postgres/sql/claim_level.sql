next_{level} AS MATERIALIZED (
  SELECT o.subqueue, o.place, m.rank, m.arrived_at, m.seq, m.number
  FROM open_{before} o CROSS JOIN LATERAL (
    SELECT x.*, row_number() OVER () AS number FROM (
      SELECT j.rank, j.arrived_at, j.seq FROM {schema}.jobs j
      WHERE j.stage = 2 AND j.subqueue = o.subqueue AND (j.rank, j.arrived_at, j.seq) > (o.rank, o.arrived_at, o.seq)
        AND (j.act_by IS NULL OR j.act_by > $5 OR j.unstarted_losses >= $9)
      ORDER BY j.rank, j.arrived_at, j.seq
      LIMIT {size}
    ) x
  ) m
),
read_{level} AS MATERIALIZED (
  SELECT * FROM (
    {sofar}SELECT subqueue, place, rank, arrived_at, seq FROM next_{level}
  ) r
  ORDER BY place, rank, arrived_at, seq LIMIT (SELECT n FROM reach)
),
open_{level} AS MATERIALIZED (
  SELECT n.subqueue, n.place, n.rank, n.arrived_at, n.seq
  FROM next_{level} n
  WHERE n.number = {size} AND (
    (SELECT count(*) FROM read_{level}) < (SELECT n FROM reach)
    OR (n.place, n.rank, n.arrived_at, n.seq) < (
      SELECT r.place, r.rank, r.arrived_at, r.seq FROM read_{level} r
      ORDER BY r.place DESC, r.rank DESC, r.arrived_at DESC, r.seq DESC LIMIT 1))
),
