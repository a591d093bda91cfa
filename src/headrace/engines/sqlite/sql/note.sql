-- Write notes. $1: [[kind, seq, label], …]
INSERT INTO notes (kind, seq, label, cursor) SELECT value ->> 0, value ->> 1, value ->> 2, 0 FROM jsonb_each($1)
