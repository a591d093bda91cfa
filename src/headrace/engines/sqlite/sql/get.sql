-- The jobs with some ids, as far as they are stored.
SELECT '[' || coalesce(group_concat(r.doc, ','), '') || ']'
FROM jsonb_each(?1) e CROSS JOIN jobs j ON j.id = unhex(e.value, '-') CROSS JOIN record r ON r.seq = j.seq
