-- What is held: queue, task, key, how many, when the last one was given.
SELECT l.queue, p.task, h.turn_key, h.jobs, h.last
FROM (
  SELECT line, turn_key, count(*) AS jobs, max(assigned_at) AS last FROM {schema}.jobs WHERE stage = 3 GROUP BY 1, 2
) h
JOIN {schema}.lines l ON l.id = h.line JOIN {schema}.profiles p ON p.id = l.profile
