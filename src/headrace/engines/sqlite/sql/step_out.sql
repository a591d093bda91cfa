-- Take jobs with keys out of the order before they are moved, each if it is still at its rev; the change that is
-- applied next puts them back. Setting arrived_at makes a trigger find the head of the key. $1: [[seq, rev, subqueue,
-- rank], …]
UPDATE jobs SET stage = 0, arrived_at = arrived_at
FROM jsonb_each($1) e WHERE jobs.seq = e.value ->> 0 AND jobs.rev = e.value ->> 1 AND jobs.stage = -1
