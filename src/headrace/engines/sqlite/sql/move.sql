-- Put jobs into other lines before a change of theirs is applied, each if it is still at its rev. None of them stands in
-- line now. $1: [[seq, rev, line], …]
UPDATE jobs SET line = e.value ->> 2 FROM jsonb_each($1) e WHERE jobs.seq = e.value ->> 0 AND jobs.rev = e.value ->> 1
