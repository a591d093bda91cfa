-- Mark a batch as settled, unless it is: the jobs that follow its end are stored with this. $1 id
UPDATE {schema}.batches SET settled = true WHERE id = $1 AND NOT settled RETURNING 1
