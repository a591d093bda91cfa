-- Of ids and keys, which are here: [[key or null, record], …]. $1: [[id, key or null], …]
SELECT '[' || coalesce(group_concat(found, ','), '') || ']' FROM (
  SELECT '[null,' || r.doc || ']' AS found
  FROM jsonb_each($1) e CROSS JOIN jobs j ON j.id = unhex(e.value ->> 0, '-') CROSS JOIN record r ON r.seq = j.seq
  UNION ALL
  SELECT '[' || json_quote(j.held_key) || ',' || r.doc || ']'
  FROM jsonb_each($1) e CROSS JOIN jobs j ON j.held_key = e.value ->> 1 AND j.held_key IS NOT NULL
    CROSS JOIN record r ON r.seq = j.seq
)
