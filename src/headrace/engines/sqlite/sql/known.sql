-- Which ids, dedup keys and request keys are stored: [[by what it was found, record], …]: null for its id, else a
-- letter and the key. $1: [[id, dedup key or null, request key or null], …]
SELECT '[' || coalesce(group_concat(found, ','), '') || ']' FROM (
  SELECT '[null,' || r.doc || ']' AS found
  FROM jsonb_each($1) e CROSS JOIN jobs j ON j.id = unhex(e.value ->> 0, '-') CROSS JOIN record r ON r.seq = j.seq
  UNION ALL
  SELECT '[' || json_quote('d' || j.held_key) || ',' || r.doc || ']'
  FROM jsonb_each($1) e CROSS JOIN jobs j ON j.held_key = e.value ->> 1 AND j.held_key IS NOT NULL
    CROSS JOIN record r ON r.seq = j.seq
  UNION ALL
  SELECT '[' || json_quote('r' || b.request) || ',' || r.doc || ']'
  FROM jsonb_each($1) e CROSS JOIN bodies b ON b.request = e.value ->> 2 AND b.request IS NOT NULL
    CROSS JOIN record r ON r.seq = b.seq
)
