-- Mark a living worker as not alive. ?1 worker
UPDATE workers SET alive = 0 WHERE id = ?1 AND alive RETURNING 1
