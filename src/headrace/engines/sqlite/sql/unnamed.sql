-- Of the jobs a worker was given long enough ago, count the beats that did not name them; being named clears the count.
UPDATE jobs
SET unnamed = iif(id IN (SELECT unhex(value, '-') FROM jsonb_each(?3)), 0, unnamed + 1)
WHERE worker = ?1 AND stage = 3 AND assigned_at <= ?2
  AND (unnamed > 0 OR id NOT IN (SELECT unhex(value, '-') FROM jsonb_each(?3)))
