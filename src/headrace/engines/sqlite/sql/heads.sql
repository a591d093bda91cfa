-- The keys in a subqueue, in order: when each last took its turn, its position, and its first job. ?1 subqueue
SELECT h.key, h.last, h.at, j.seq, j.rank, j.arrived_at, j.unstarted_losses, j.act_by
FROM heads h CROSS JOIN jobs j ON j.seq = h.seq
WHERE h.subqueue = +?1 AND h.rank IS NOT NULL ORDER BY h.rank, h.at, h.seq
