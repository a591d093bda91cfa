-- Those of some batches that were cancelled: [id, …]. $1: [id, …]
SELECT json_group_array(hex(b.id))
FROM jsonb_each($1) e CROSS JOIN batches b ON b.id = unhex(e.value, '-') WHERE b.cancelled_at IS NOT NULL
