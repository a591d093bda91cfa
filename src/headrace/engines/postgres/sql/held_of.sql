-- The customers of the jobs that a worker holds. $1 worker
SELECT DISTINCT b.spec::json ->> 'customer'
FROM {schema}.jobs j JOIN {schema}.bodies b ON b.id = j.id WHERE j.stage = 3 AND j.worker = $1
