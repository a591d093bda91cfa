-- Mark jobs that others wait for. $1: [[seq, seq of the awaited job], …]
UPDATE jobs SET tied = 1 WHERE seq IN (SELECT value ->> 1 FROM jsonb_each($1)) AND NOT tied
