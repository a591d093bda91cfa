-- Jobs that hold a dedup key and should not, or do not and should.
SELECT {job_id} AS about, 'it has ended, and still holds its dedup key' AS what
FROM {schema}.jobs j JOIN {schema}.bodies b ON {body_of_job}
WHERE j.stage >= 4 AND j.held_key IS NOT NULL AND (j.stage > 4 OR {dedup_for_of_body} IS NULL)
UNION ALL
SELECT {job_id}, 'it is live, and does not hold its dedup key'
FROM {schema}.jobs j JOIN {schema}.bodies b ON {body_of_job}
WHERE j.stage < 4 AND j.held_key IS NULL AND {dedup_of_body} IS NOT NULL
  -- A job that was replaced while a worker had it has freed its key.
  AND NOT EXISTS (SELECT 1 FROM {schema}.events e WHERE e.seq = j.seq AND {verb_of_event} = 'replace')
UNION ALL
SELECT {job_id}, 'it holds a dedup key, and has none'
FROM {schema}.jobs j JOIN {schema}.bodies b ON {body_of_job}
WHERE j.stage < 4 AND j.held_key IS NOT NULL AND {dedup_of_body} IS NULL
