-- Held jobs without a worker that is known.
SELECT {job_id} AS about, 'it is held, and its worker is not known' AS what
FROM {schema}.jobs j
WHERE j.stage = 3 AND NOT EXISTS (SELECT 1 FROM {schema}.workers w WHERE w.id = j.worker)
