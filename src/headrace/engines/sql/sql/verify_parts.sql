-- Jobs without their payload, and parts without their job.
SELECT {job_id} AS about, 'it has no payload' AS what
FROM {schema}.jobs j LEFT JOIN {schema}.bodies b ON {body_of_job} WHERE b.seq IS NULL
UNION ALL
{lone_parts}
