-- Mark a batch as settled, unless it is: what follows its end is stored with this. $1 id
UPDATE {schema}.batches SET settled = true WHERE id = $1 AND NOT settled RETURNING 1
