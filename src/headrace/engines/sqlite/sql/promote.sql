-- Queue deferred jobs that are due, the longest due first.
UPDATE jobs SET status = 'queued', stage = iif(turn_key IS NULL, 2, -1), arrived_at = available_at, rev = rev + 1, updated_at = ?1
WHERE seq IN (
  SELECT seq FROM jobs WHERE stage = 1 AND available_at <= ?1 ORDER BY available_at LIMIT ?2 + 0)
