-- The jobs without keys in a subqueue behind the first. A bare parameter beside a column has a statement compiled again
-- whenever it is bound, here and in others: hence the plus. ?1 subqueue; ?2 rank, ?3 arrival, ?4 order number of the
-- first
SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM jobs
WHERE stage = 2 AND subqueue = +?1 AND (rank, arrived_at, seq) > (?2, ?3, ?4) ORDER BY rank, arrived_at, seq
