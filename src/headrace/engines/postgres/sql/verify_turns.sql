-- Heads that are behind the first job in line of their key, and keys without one; unless an arrival is still to move it.
-- Order numbers are left out: jobs that arrived before the last turn of their key are at one place, whoever is named.
SELECT f.turn_key AS about, 'its first job in line is before the place that claims would look at' AS what
FROM (
  SELECT DISTINCT ON (line, turn_key) line, turn_key, rank, arrived_at, seq
  FROM {schema}.jobs WHERE stage = -1 ORDER BY line, turn_key, rank, arrived_at, seq
) f
  LEFT JOIN {schema}.lines l ON l.id = f.line LEFT JOIN {schema}.profiles p ON p.id = l.profile
  LEFT JOIN {schema}.heads h ON h.task = p.task AND h.key = f.turn_key AND h.line = f.line
WHERE (h.rank IS NULL OR (h.rank, h.at) > (f.rank, greatest(f.arrived_at, h.last)))
  AND NOT EXISTS (SELECT 1 FROM {schema}.arrivals a WHERE a.line = f.line AND a.key = f.turn_key)
