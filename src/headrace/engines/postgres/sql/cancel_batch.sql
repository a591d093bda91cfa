-- Mark a batch as cancelled and sealed, and leave a note for its jobs. $1 id, $2 the moment, $3 by whom
WITH noted AS (INSERT INTO {schema}.notes (kind, seq, batch) VALUES ('s', 0, $1))
UPDATE {schema}.batches SET sealed = true, cancelled_at = $2, cancelled_by = $3 WHERE id = $1
