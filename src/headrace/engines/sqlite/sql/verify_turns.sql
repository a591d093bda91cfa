-- Heads that are not at the first job in line of their key.
SELECT f.turn_key AS about, 'its first job in line is not the one that claims would look at' AS what
FROM (
  SELECT line, turn_key, rank, arrived_at, seq,
    row_number() OVER (PARTITION BY line, turn_key ORDER BY rank, arrived_at, seq) AS place
  FROM jobs WHERE stage = -1
) f
  LEFT JOIN lines l ON l.id = f.line LEFT JOIN profiles p ON p.id = l.profile
  LEFT JOIN heads h ON h.task = p.task AND h.key = f.turn_key AND h.line = f.line
WHERE f.place = 1 AND (h.rank, h.arrived_at, h.seq) IS NOT (f.rank, f.arrived_at, f.seq)
UNION ALL
SELECT h.key, 'none of its jobs is in line, and claims would look at one'
FROM heads h
WHERE h.rank IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM jobs j WHERE j.stage = -1 AND j.line = h.line AND j.turn_key = h.key)
