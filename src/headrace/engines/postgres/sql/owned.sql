-- Which of these jobs are running and owned by these workers. From $1 on columns.OWNED, as texts of arrays
SELECT a.place
FROM unnest({owned_arrays}) AS a ({owned_names})
  JOIN {schema}.bodies b ON b.id = a.id
  JOIN {schema}.jobs j ON j.seq = b.seq
WHERE j.worker = a.worker AND j.epoch = a.epoch AND j.status = 'running'
