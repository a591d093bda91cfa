-- All known workers, each with the number of jobs that it owns.
SELECT {worker_read}, (SELECT count(*) FROM {schema}.jobs j WHERE j.stage = 3 AND j.worker = w.id)
FROM {schema}.workers w
