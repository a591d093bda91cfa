-- The batches of some ids, as far as they are here.
SELECT id, created_at, touched_at, sealed, abandoned, total, completed, failed, cancelled, ended_at,
  cancelled_at, cancelled_by, settled, calls
FROM batches WHERE id IN (SELECT unhex(value, '-') FROM jsonb_each(?1))
