-- Whether keys take turns: a job with a key is queued, or among those that are due. ?1 the moment, ?2 how many due
-- jobs are queued
SELECT EXISTS (SELECT 1 FROM jobs WHERE stage = -1) OR EXISTS (
  SELECT 1 FROM (
    SELECT turn_key FROM jobs WHERE stage = 1 AND available_at <= +?1 ORDER BY available_at LIMIT ?2 + 0)
  WHERE turn_key IS NOT NULL)
