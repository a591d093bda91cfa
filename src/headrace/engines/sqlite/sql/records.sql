-- The jobs with some order numbers, as far as they are stored.
SELECT '[' || coalesce(group_concat(r.doc, ','), '') || ']'
FROM jsonb_each(?1) e CROSS JOIN record r ON r.seq = e.value
