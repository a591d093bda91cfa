-- The jobs with some order numbers, in this order. ?1
SELECT '[' || coalesce(group_concat(r.doc, ','), '') || ']'
FROM (SELECT value AS seq FROM json_each(?1) ORDER BY key) e CROSS JOIN record r ON r.seq = e.seq
