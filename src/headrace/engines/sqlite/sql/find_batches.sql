-- Batches, newest first, below a moment and an id: ?1, ?2. ?3 how many
SELECT id, created_at, touched_at, sealed, abandoned, total, completed, failed, cancelled, ended_at,
  cancelled_at, cancelled_by, settled, calls
FROM batches WHERE (created_at, id) < (?1, ?2) ORDER BY created_at DESC, id DESC LIMIT ?3 + 0
