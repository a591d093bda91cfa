-- Hold a batch against jobs that are being added: those that were are there, and others are added after the commit. $1 id
SELECT 1 FROM {schema}.batches WHERE id = $1 FOR UPDATE
