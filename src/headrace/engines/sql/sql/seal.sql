-- Seal a batch (core.batch.sealed); a row if it is stored. $1 id, $2 the moment
UPDATE {schema}.batches
SET sealed = true, touched_at = CASE WHEN sealed OR touched_at > $2 THEN touched_at ELSE $2 END
WHERE id = $1 RETURNING 1
