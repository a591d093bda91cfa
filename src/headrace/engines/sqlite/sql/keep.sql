-- Give new jobs the retention of their own. $1: [[seq, {status: microseconds, …}], …]
UPDATE jobs SET keep = (SELECT value ->> 1 FROM jsonb_each($1) WHERE value ->> 0 = seq)
WHERE seq IN (SELECT value ->> 0 FROM jsonb_each($1))
