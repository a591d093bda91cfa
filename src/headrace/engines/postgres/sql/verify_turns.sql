-- Heads that are behind the first queued job of their key, and keys without one; unless an arrival is still to move it.
-- Order numbers are left out: jobs that arrived before the last turn of their key are at one position, in any order.
SELECT f.turn_key AS about, 'its first queued job is before the place that claims would look at' AS what
FROM (
  SELECT DISTINCT ON (subqueue, turn_key) subqueue, turn_key, rank, arrived_at, seq
  FROM {schema}.jobs WHERE stage = -1 ORDER BY subqueue, turn_key, rank, arrived_at, seq
) f
  LEFT JOIN {schema}.subqueues l ON l.id = f.subqueue LEFT JOIN {schema}.profiles p ON p.id = l.profile
  LEFT JOIN {schema}.heads h ON h.task = p.task AND h.key = f.turn_key AND h.subqueue = f.subqueue
WHERE (h.rank IS NULL OR (h.rank, h.at) > (f.rank, greatest(f.arrived_at, h.last)))
  AND NOT EXISTS (SELECT 1 FROM {schema}.arrivals a WHERE a.subqueue = f.subqueue AND a.key = f.turn_key)
