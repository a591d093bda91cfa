-- Lock a batch against new jobs: those added before are stored by now, and others are added after this commit. $1 id
SELECT 1 FROM {schema}.batches WHERE id = $1 FOR UPDATE
