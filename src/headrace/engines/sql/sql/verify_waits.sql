-- Jobs that wait and will get no note of an end.
SELECT {job_id} AS about, 'it waits, but for nothing that is live, and no note is on its way' AS what
FROM {schema}.jobs j
WHERE j.status = {waiting}
  AND NOT EXISTS (
    SELECT 1 FROM {schema}.waits w JOIN {schema}.jobs p ON p.seq = w.parent WHERE w.child = j.seq AND p.stage < 4)
  AND NOT EXISTS (SELECT 1 FROM {schema}.notes n WHERE n.seq = j.seq AND substr(n.kind, 1, 1) = 'w')
  AND NOT EXISTS (
    SELECT 1 FROM {schema}.waits w JOIN {schema}.notes n ON n.seq = w.parent
    WHERE w.child = j.seq AND substr(n.kind, 1, 1) = 'e')
UNION ALL
SELECT {job_id}, 'others wait for it, and would not hear of its end'
FROM {schema}.jobs j
WHERE j.stage < 4 AND j.tied = 0 AND EXISTS (
  SELECT 1 FROM {schema}.waits w JOIN {schema}.jobs c ON c.seq = w.child WHERE w.parent = j.seq AND c.status = {waiting})
