-- Heads that are not at the first queued job of their key.
SELECT f.turn_key AS about, 'its first queued job is not the one that claims would look at' AS what
FROM (
  SELECT subqueue, turn_key, rank, arrived_at, seq,
    row_number() OVER (PARTITION BY subqueue, turn_key ORDER BY rank, arrived_at, seq) AS place
  FROM jobs WHERE stage = -1
) f
  LEFT JOIN subqueues l ON l.id = f.subqueue LEFT JOIN profiles p ON p.id = l.profile
  LEFT JOIN heads h ON h.task = p.task AND h.key = f.turn_key AND h.subqueue = f.subqueue
WHERE f.place = 1 AND (h.rank, h.arrived_at, h.seq) IS NOT (f.rank, f.arrived_at, f.seq)
UNION ALL
SELECT h.key, 'none of its jobs is queued, and claims would look at one'
FROM heads h
WHERE h.rank IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM jobs j WHERE j.stage = -1 AND j.subqueue = h.subqueue AND j.turn_key = h.key)
