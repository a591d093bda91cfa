-- The jobs in a line, in order. A bare parameter beside a column has a statement compiled anew whenever it is bound,
-- here and in others: hence the plus. ?1 line
SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM jobs
WHERE stage = 2 AND line = +?1 ORDER BY rank, arrived_at, seq
