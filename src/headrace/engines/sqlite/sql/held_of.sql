-- The customers of the jobs that a worker holds. ?1 worker
SELECT DISTINCT b.spec ->> 'customer' FROM jobs j CROSS JOIN bodies b ON b.seq = j.seq WHERE j.stage = 3 AND j.worker = +?1
