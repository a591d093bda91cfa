-- The jobs that took over what was submitted under some ids: [[id, record], …]. $1: [id, …]
SELECT '[' || coalesce(group_concat('[' || json_quote(e.value) || ',' || r.doc || ']', ','), '') || ']'
FROM jsonb_each($1) e CROSS JOIN labels l ON l.label = 'm' || e.value CROSS JOIN record r ON r.seq = l.seq
