-- The attempts and the events of one job.
SELECT
  (SELECT '[' || coalesce(group_concat('[' || number || ',' || data || ']', ','), '') || ']'
   FROM (SELECT number, data FROM attempts a WHERE a.seq = j.seq ORDER BY number)),
  (SELECT '[' || coalesce(group_concat(data, ','), '') || ']'
   FROM (SELECT data FROM events e WHERE e.seq = j.seq ORDER BY e.id))
FROM jobs j WHERE j.id = ?1
