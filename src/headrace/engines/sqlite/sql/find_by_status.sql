-- Candidates: jobs of rare statuses. ?10 to ?14: whether to look among the queued, the deferred, those not yet in line,
-- the held, and those that ended badly.
WITH source (seq) AS (
  SELECT seq FROM jobs WHERE ?10 AND status = 'queued' AND seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?11 AND status IN ('scheduled', 'retrying') AND seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?12 AND status IN ('pending', 'waiting') AND seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?13 AND status IN ('assigned', 'accepted', 'running') AND seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?14 AND status IN ('failed', 'cancelled') AND seq < ?1
)
