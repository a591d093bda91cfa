-- Put jobs into other lines, or elsewhere in their own, before a change of theirs is applied, each if it is still at its
-- rev. None of them stands in line now. $1: [[seq, rev, line, rank], …]
UPDATE jobs SET line = e.value ->> 2, rank = e.value ->> 3
FROM jsonb_each($1) e WHERE jobs.seq = e.value ->> 0 AND jobs.rev = e.value ->> 1
