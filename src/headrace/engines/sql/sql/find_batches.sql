-- Batches, newest first, below a moment and an id: $1, $2. $3 how many
{counted_batches.sql}
WHERE (b.created_at, b.id) < ($1, $2) ORDER BY b.created_at DESC, b.id DESC LIMIT $3 + 0
