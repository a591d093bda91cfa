-- For jobs with a change that was not applied: [[id of the last change, record, record of the job with the key, attempt
-- as in history.sql], …], in order. [[id, key or null, number of an attempt or null], …]
SELECT '[' || coalesce(group_concat(seen, ','), '') || ']' FROM (
  SELECT '[' || coalesce(j.change, 'null') || ',' || coalesce((SELECT doc FROM record WHERE seq = j.seq), 'null') || ','
    || coalesce((SELECT r.doc FROM jobs h CROSS JOIN record r ON r.seq = h.seq
         WHERE h.held_key = e.value ->> 1 AND h.held_key IS NOT NULL AND h.seq <> j.seq), 'null') || ','
    || coalesce((SELECT '[' || a.number || ',0,null,' || a.data || ']' FROM attempts a
         WHERE a.seq = j.seq AND a.number = e.value ->> 2),
       iif(j.number = e.value ->> 2, '[' || j.number || ',0,null,' || json_array({past_of_completed}) || ']', NULL),
       'null') || ']' AS seen
  FROM jsonb_each($1) e LEFT JOIN jobs j ON j.id = unhex(e.value ->> 0, '-')
  ORDER BY e.key
)
