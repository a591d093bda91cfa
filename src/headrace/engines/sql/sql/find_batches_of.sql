-- The batches of a customer, newest first, below a moment and an id: $1, $2. $3 how many, $4 the customer
{counted_batches.sql}
WHERE b.customer = $4 AND (b.created_at, b.id) < ($1, $2) ORDER BY b.created_at DESC, b.id DESC LIMIT $3 + 0
