-- Process arrivals: make or move the heads of their keys; how many there were. $1 lines, $2 their tasks, $3 most
WITH came AS (
  DELETE FROM {schema}.arrivals
  WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.arrivals WHERE line = ANY ($1::integer[]) LIMIT $3))
  RETURNING line, key, rank, arrived_at, seq
),
first AS (
  -- A place in front of all new jobs of a key; it need not be the place of any of them.
  SELECT t.task, c.key, c.line, c.rank, c.arrived_at, c.seq
  FROM (SELECT line, key, min(rank) AS rank, min(arrived_at) AS arrived_at, min(seq) AS seq FROM came GROUP BY 1, 2) c
    JOIN unnest($1::integer[], $2::text[]) AS t (line, task) ON t.line = c.line
),
stood AS (
  INSERT INTO {schema}.heads (task, key, line, rank, at, seq, last)
  SELECT f.task, f.key, f.line, f.rank, greatest(f.arrived_at, h.last), f.seq, coalesce(h.last, 0)
  FROM first f CROSS JOIN LATERAL (
    -- The gate is locked, so nobody else inserts a head meanwhile.
    SELECT max(last) AS last, max(rank) FILTER (WHERE line = f.line) AS rank, max(at) FILTER (WHERE line = f.line) AS at,
      max(seq) FILTER (WHERE line = f.line) AS seq
    FROM {schema}.heads WHERE task = f.task AND key = f.key
  ) h
  WHERE h.rank IS NULL OR (f.rank, greatest(f.arrived_at, h.last), f.seq) < (h.rank, h.at, h.seq)
  ON CONFLICT (task, key, line) DO UPDATE SET rank = excluded.rank, at = excluded.at, seq = excluded.seq
)
SELECT count(*) FROM came
