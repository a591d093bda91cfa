-- The batches with some ids, as far as they are stored. $1 ids
{counted_batches.sql}
WHERE b.id = ANY ($1::uuid[])
