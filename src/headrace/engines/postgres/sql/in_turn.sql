-- The first new jobs of keys, for the claim that moves their heads.
in_turn AS (
  INSERT INTO {schema}.arrivals (subqueue, key, rank, arrived_at, seq)
  SELECT subqueue, turn_key, rank, min(arrived_at), min(seq) FROM {arrived} WHERE stage = -1 GROUP BY 1, 2, 3
)
