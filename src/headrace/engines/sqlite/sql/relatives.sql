-- The jobs that new jobs name: [[id, seq, status, whether a cancel was requested], …]. $1: [id, …]
SELECT json_group_array(json_array(hex(j.id), j.seq, j.status, j.cancel_requested_at IS NOT NULL))
FROM jsonb_each($1) e CROSS JOIN jobs j ON j.id = unhex(e.value, '-')
