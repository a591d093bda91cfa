-- What a limited claim must know before it selects, and which jobs are held. $1 worker, $2 request, $3 subqueues
WITH me AS MATERIALIZED (
  -- Burying waits for this lock, so that no claim commits for a worker that is dead already.
  SELECT 1 FROM {schema}.workers WHERE id = $1 AND alive FOR KEY SHARE
)
SELECT EXISTS (SELECT 1 FROM me) AS alive, subqueues_rev, profiles_rev, settings_rev,
  (SELECT min(available_at) FROM {schema}.jobs WHERE stage = 1) AS next_due,
  -- As in claim_head.sql.
  CASE WHEN EXISTS (SELECT 1 FROM me) THEN {schema}.is_repeat($1, $2) ELSE false END AS again,
  (SELECT 1 FROM {schema}.arrivals WHERE subqueue = ANY ($3::integer[]) LIMIT 1) = 1 AS came,
  h.*
FROM {schema}.books, (
  SELECT array_agg(queue) AS queues, array_agg(task) AS tasks, array_agg(turn_key) AS keys, array_agg(jobs) AS jobs
  FROM (
    {usage.sql}
  ) u
) h
