-- Whether there is room for these profiles. $1: [how many may be live, [[task, what it requires], …]]
SELECT (SELECT count(*) FROM profiles WHERE live) + (
  SELECT count(*) FROM json_each($1 -> 1) w
  WHERE NOT EXISTS (
    SELECT 1 FROM profiles p WHERE p.task = w.value ->> 0 AND p.requires = w.value ->> 1 AND p.live)) <= $1 ->> 0
