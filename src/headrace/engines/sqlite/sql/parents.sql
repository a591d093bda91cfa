-- The statuses of the jobs that these jobs wait for, null for one that is gone: seq, [status, …]. ?1: [seq, …]
SELECT w.child, json_group_array(DISTINCT p.status)
FROM jsonb_each(?1) e CROSS JOIN waits w ON w.child = e.value LEFT JOIN jobs p ON p.seq = w.parent
GROUP BY w.child
