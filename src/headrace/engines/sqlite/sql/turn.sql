-- Keys took their turn: move each head to the next job of its key. ?1: [[task, key], …], ?2 the moment
UPDATE heads SET last = ?2, (rank, arrived_at, seq) = (
  SELECT rank, arrived_at, seq FROM jobs WHERE stage = -1 AND subqueue = heads.subqueue AND turn_key = heads.key
  ORDER BY rank, arrived_at, seq LIMIT 1)
WHERE (task, key) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))
