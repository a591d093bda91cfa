-- Raise the beat number of a worker that is alive.
UPDATE workers SET beats = beats + 1, beat = ?2, beat_at = ?3 WHERE id = ?1 AND alive RETURNING beats
