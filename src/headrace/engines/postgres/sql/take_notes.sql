-- Lock notes that are to be processed, the oldest first; those that another has locked are skipped. $1 behind which, $2
-- how many
SELECT id, kind, seq, cursor FROM {schema}.notes WHERE id > $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
