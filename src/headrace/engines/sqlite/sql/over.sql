-- The batches that are over and not settled; writes when they ended. ?1 the moment
UPDATE batches INDEXED BY batches_over SET ended_at = coalesce(ended_at, ?1)
WHERE sealed AND NOT settled AND total <= completed + failed + cancelled
RETURNING {batch}
