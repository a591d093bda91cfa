-- The jobs that a request was given before, and whether they are started. ?1 worker, ?2 request
SELECT j.seq, j.status = 'running' FROM jobs j CROSS JOIN subqueues l ON l.id = j.subqueue
  LEFT JOIN queues q ON q.name = l.queue
WHERE j.worker = +?1 AND j.claim = +?2 AND j.stage = 3
ORDER BY -coalesce(q.priority, 0), j.rank, j.arrived_at, j.seq
