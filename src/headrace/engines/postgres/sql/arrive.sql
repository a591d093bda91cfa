-- Process arrivals: make or move the heads of their keys; returns how many. $1 subqueues, $2 their tasks, $3 maximum
WITH came AS (
  DELETE FROM {schema}.arrivals
  WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.arrivals WHERE subqueue = ANY ($1::integer[]) LIMIT $3))
  RETURNING subqueue, key, rank, arrived_at, seq
),
first AS (
  -- A position in front of all new jobs of a key; it need not be the position of any of them.
  SELECT t.task, c.key, c.subqueue, c.rank, c.arrived_at, c.seq
  FROM (SELECT subqueue, key, min(rank) AS rank, min(arrived_at) AS arrived_at, min(seq) AS seq
    FROM came GROUP BY 1, 2) c
    JOIN unnest($1::integer[], $2::text[]) AS t (subqueue, task) ON t.subqueue = c.subqueue
),
stood AS (
  INSERT INTO {schema}.heads (task, key, subqueue, rank, at, seq, last)
  SELECT f.task, f.key, f.subqueue, f.rank, greatest(f.arrived_at, h.last), f.seq, coalesce(h.last, 0)
  FROM first f CROSS JOIN LATERAL (
    -- The gate is locked, so no other transaction inserts a head meanwhile.
    SELECT max(last) AS last, max(rank) FILTER (WHERE subqueue = f.subqueue) AS rank,
      max(at) FILTER (WHERE subqueue = f.subqueue) AS at,
      max(seq) FILTER (WHERE subqueue = f.subqueue) AS seq
    FROM {schema}.heads WHERE task = f.task AND key = f.key
  ) h
  WHERE h.rank IS NULL OR (f.rank, greatest(f.arrived_at, h.last), f.seq) < (h.rank, h.at, h.seq)
  ON CONFLICT (task, key, subqueue) DO UPDATE SET rank = excluded.rank, at = excluded.at, seq = excluded.seq
)
SELECT count(*) FROM came
