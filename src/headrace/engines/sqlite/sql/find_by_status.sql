-- Candidates: jobs of rare statuses. ?9 to ?13: whether to look among the queued, the deferred, those not yet in line,
-- the held, and those that ended badly. The plus keeps SQLite from going through every job by its number instead of
-- through the index of the few.
WITH source (seq) AS (
  SELECT seq FROM jobs WHERE ?9 AND stage = 2 AND +seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?9 AND stage = -1 AND +seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?10 AND stage = 1 AND +seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?11 AND stage = 0 AND +seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?12 AND stage = 3 AND +seq < ?1
  UNION ALL
  SELECT seq FROM jobs WHERE ?13 AND stage = 5 AND +seq < ?1
)
