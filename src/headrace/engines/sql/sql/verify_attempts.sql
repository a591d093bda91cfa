-- Jobs that were tried, do not run now, and have no record of the last attempt; and records of attempts to come.
SELECT {job_id} AS about, 'its last attempt is not on record' AS what
FROM {schema}.jobs j
WHERE j.status <> {running} AND {attempt_of_job} > 0 AND NOT {attempt_on_row} AND NOT EXISTS (
  SELECT 1 FROM {schema}.attempts a WHERE a.seq = j.seq AND a.number = {last_record_of_job})
UNION ALL
SELECT {job_id}, 'an attempt is on record that it has not come to'
FROM {schema}.jobs j JOIN {schema}.attempts a ON a.seq = j.seq
WHERE a.number > {attempt_of_job}
