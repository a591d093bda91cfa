-- Hold notes to be worked off, the oldest first; those that another holds are its own. $1 behind which, $2 how many
SELECT id, kind, seq, cursor FROM {schema}.notes WHERE id > $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
