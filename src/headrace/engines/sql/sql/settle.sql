-- Mark a batch as settled: what follows its end was submitted. $1 id
UPDATE {schema}.batches SET settled = true WHERE id = $1 AND NOT settled
