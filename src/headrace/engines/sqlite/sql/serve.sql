-- Write down which lines an ask serves.
INSERT INTO served (ask, line)
SELECT ?1, l.id FROM lines l CROSS JOIN profiles p ON p.id = l.profile
WHERE coalesce(p.base, p.id) IN (SELECT value FROM json_each(?2))
  AND (?3 IS NULL OR l.queue IN (SELECT value FROM json_each(?3)))
