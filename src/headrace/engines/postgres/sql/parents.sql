-- How those stand whom these jobs wait for; null: gone. Read after the jobs are held: of two parents that end at the same
-- moment, the one that is told later is told with both. $1 order numbers
SELECT w.child, array_agg(DISTINCT j.status)
FROM {schema}.waits w LEFT JOIN {schema}.jobs j ON j.seq = w.parent
WHERE w.child = ANY ($1::bigint[])
GROUP BY w.child
