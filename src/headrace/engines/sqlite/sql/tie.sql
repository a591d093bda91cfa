-- Mark jobs that others wait for. $1: [[seq, seq of the one waited for], …]
UPDATE jobs SET tied = 1 WHERE seq IN (SELECT value ->> 1 FROM jsonb_each($1)) AND NOT tied
