-- Put jobs back into the order of their subqueues after they were moved there. Setting arrived_at makes a trigger find
-- the head of the key. $1: [[seq, rev, subqueue, rank], …]
UPDATE jobs SET stage = iif(turn_key IS NULL, 2, -1), arrived_at = arrived_at
FROM jsonb_each($1) e WHERE jobs.seq = e.value ->> 0
