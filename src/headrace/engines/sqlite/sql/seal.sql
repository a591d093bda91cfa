-- Seal a batch (core.batch.sealed). ?1 id, ?2 the moment
UPDATE batches SET sealed = 1, touched_at = iif(sealed, touched_at, max(touched_at, ?2)) WHERE id = ?1 RETURNING 1
