-- Batches, newest first, below a moment and an id: ?1, ?2. ?3 how many
SELECT {batch}
FROM batches WHERE (created_at, id) < (?1, ?2) ORDER BY created_at DESC, id DESC LIMIT ?3 + 0
