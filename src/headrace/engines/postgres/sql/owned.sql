-- Which of these jobs are running and owned by these workers. $1 to $4, as texts of arrays: place, id, worker, epoch
SELECT a.place
FROM unnest($1::text::integer[], $2::text::uuid[], $3::text::uuid[], $4::text::integer[]) AS a (place, id, worker, epoch)
  JOIN {schema}.bodies b ON b.id = a.id
  JOIN {schema}.jobs j ON j.seq = b.seq
WHERE j.worker = a.worker AND j.epoch = a.epoch AND j.status = 'running'
