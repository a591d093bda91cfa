-- Raise the beat number of a worker that is alive. ?1 worker, from ?2 on: sql.workers.COLUMNS that change
UPDATE {schema}.workers SET beats = beats + 1, {worker_changed} WHERE id = $1 AND alive RETURNING beats
