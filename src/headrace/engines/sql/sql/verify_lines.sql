-- Jobs in a subqueue where no claim finds them.
SELECT {job_id} AS about, 'its subqueue is not there' AS what
FROM {schema}.jobs j LEFT JOIN {schema}.subqueues l ON l.id = j.subqueue
  LEFT JOIN {schema}.profiles p ON p.id = l.profile
WHERE p.id IS NULL
UNION ALL
SELECT {job_id}, 'it is live, and workers are not told of its task and requirements'
FROM {schema}.jobs j JOIN {schema}.subqueues l ON l.id = j.subqueue JOIN {schema}.profiles p ON p.id = l.profile
WHERE j.stage < 4 AND NOT p.live
UNION ALL
SELECT {job_id}, 'it is in a subqueue of a customer, and workers are not told of what that stands for'
FROM {schema}.jobs j JOIN {schema}.subqueues l ON l.id = j.subqueue JOIN {schema}.profiles p ON p.id = l.profile
  LEFT JOIN {schema}.profiles b ON b.id = p.base
WHERE p.base IS NOT NULL AND (b.id IS NULL OR (j.stage < 4 AND NOT b.live))
UNION ALL
SELECT {job_id}, 'it stands in a subqueue of the task ' || p.task
FROM {schema}.jobs j JOIN {schema}.subqueues l ON l.id = j.subqueue JOIN {schema}.profiles p ON p.id = l.profile
  JOIN {schema}.bodies b ON {body_of_job}
WHERE p.task <> {task_of_body}
UNION ALL
SELECT {job_id}, 'it is ' || j.status || ', and not where such jobs are looked for'
FROM {schema}.jobs j
WHERE j.stage <> {stage_of_job}
