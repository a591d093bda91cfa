-- What follows the end of a batch was submitted.
UPDATE batches SET settled = 1 WHERE id = ?1
