-- Mark a batch as cancelled and sealed. ?1 id, ?2 the moment, ?3 by whom
UPDATE batches SET sealed = 1, cancelled_at = ?2, cancelled_by = ?3 WHERE id = ?1
