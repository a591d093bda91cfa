-- Declare a living worker dead if its beat number is still this one. ?1 worker, ?2 beats
UPDATE workers SET alive = 0 WHERE id = ?1 AND beats = ?2 AND alive RETURNING 1
