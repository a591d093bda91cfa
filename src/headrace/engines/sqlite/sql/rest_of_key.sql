-- The jobs of one key in a subqueue behind its first job. ?1 subqueue, ?2 key; ?3 rank, ?4 arrival, ?5 order number of
-- the first
SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM jobs
WHERE stage = -1 AND subqueue = +?1 AND turn_key = +?2 AND (rank, arrived_at, seq) > (?3, ?4, ?5)
ORDER BY rank, arrived_at, seq
