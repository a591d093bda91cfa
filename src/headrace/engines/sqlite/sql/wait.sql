-- Record which jobs new jobs wait for. $1: [[seq, seq of the awaited job], …]
INSERT INTO waits (child, parent) SELECT value ->> 0, value ->> 1 FROM jsonb_each($1) WHERE true
ON CONFLICT DO NOTHING
