-- The jobs that a request was given before and that are not started. $1 worker, $2 request
SELECT {record}
FROM {schema}.jobs j CROSS JOIN LATERAL (SELECT * FROM {schema}.bodies WHERE id = j.id LIMIT 1) b
WHERE j.stage = 3 AND j.worker = $1 AND j.claim = $2 AND j.status <> 'running'
