-- The jobs without keys in a line behind the first. A bare parameter beside a column has a statement compiled anew whenever
-- it is bound, here and in others: hence the plus. ?1 line; ?2 rank, ?3 arrival, ?4 order number of the first
SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM jobs
WHERE stage = 2 AND line = +?1 AND (rank, arrived_at, seq) > (?2, ?3, ?4) ORDER BY rank, arrived_at, seq
