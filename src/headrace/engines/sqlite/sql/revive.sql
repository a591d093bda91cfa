-- Mark the profile of a job as live again, and what it stands for.
UPDATE profiles SET live = 1
WHERE NOT live AND id IN (
  SELECT e.value FROM jobs j CROSS JOIN lines l ON l.id = j.line CROSS JOIN profiles p ON p.id = l.profile
    CROSS JOIN json_each(json_array(p.id, p.base)) e WHERE j.seq = ?1)
RETURNING id
