-- What follows the end of a batch was submitted. $1 id
UPDATE {schema}.batches SET settled = true WHERE id = $1 AND NOT settled
