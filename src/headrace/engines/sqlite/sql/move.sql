-- Put jobs into other subqueues, or elsewhere in their own, before a change of theirs is applied, each if it is still
-- at its rev. None of them is queued now. $1: [[seq, rev, subqueue, rank], …]
UPDATE jobs SET subqueue = e.value ->> 2, rank = e.value ->> 3
FROM jsonb_each($1) e WHERE jobs.seq = e.value ->> 0 AND jobs.rev = e.value ->> 1
