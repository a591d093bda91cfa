-- The attempts and the events of one job: [[number, 0, null, data], …], [event, …].
SELECT
  (SELECT '[' || coalesce(group_concat('[' || number || ',0,null,' || data || ']', ','), '') || ']'
   FROM (
     SELECT number, data FROM attempts a WHERE a.seq = j.seq
     UNION ALL
     -- The one that completed the job.
     SELECT j.number, json_array({past_of_completed}) WHERE j.number IS NOT NULL
     ORDER BY number)),
  (SELECT '[' || coalesce(group_concat(data, ','), '') || ']'
   FROM (SELECT data FROM events e WHERE e.seq = j.seq ORDER BY e.id))
FROM jobs j WHERE j.id = ?1
