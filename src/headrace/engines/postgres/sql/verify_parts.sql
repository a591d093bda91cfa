-- Jobs without their payload, and parts without their job.
SELECT {job_id} AS about, 'it has no payload' AS what
FROM {schema}.jobs j LEFT JOIN {schema}.bodies b ON {body_of_job} WHERE b.seq IS NULL
UNION ALL
SELECT '#' || b.seq, 'a payload of a job that is gone' FROM {schema}.bodies b
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.seq = b.seq)
UNION ALL
SELECT '#' || a.seq, 'an attempt of a job that is gone' FROM {schema}.attempts a
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.seq = a.seq)
UNION ALL
SELECT '#' || e.seq, 'an act on a job that is gone' FROM {schema}.events e
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.seq = e.seq)
UNION ALL
SELECT '#' || l.seq, 'a tag or a relation of a job that is gone' FROM {schema}.labels l
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.seq = l.seq)
UNION ALL
SELECT '#' || e.seq, 'an item or a log line of a job that is gone' FROM {schema}.entries e
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.seq = e.seq)
UNION ALL
SELECT '#' || w.child, 'what a job waited for that is gone' FROM {schema}.waits w
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.seq = w.child)
