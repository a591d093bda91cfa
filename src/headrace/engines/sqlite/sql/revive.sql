-- Mark the profile of a job as live again.
UPDATE profiles SET live = 1
WHERE NOT live AND id = (SELECT l.profile FROM jobs j CROSS JOIN lines l ON l.id = j.line WHERE j.seq = ?1)
RETURNING id
