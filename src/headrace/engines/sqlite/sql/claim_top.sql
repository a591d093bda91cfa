-- What a claim of limited jobs must know before it selects. ?1 worker
SELECT json_array(
  EXISTS (SELECT 1 FROM workers WHERE id = ?1 AND alive), subqueues_rev, profiles_rev, settings_rev,
  (SELECT min(available_at) FROM jobs WHERE stage = 1))
FROM books
