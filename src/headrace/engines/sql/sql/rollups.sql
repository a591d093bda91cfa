-- Rows of a time, and all reports. $1 since, $2 until, $3 task or null, $4 queue or null
SELECT 0 AS step, 0 AS at, '' AS task, '' AS queue, data FROM {schema}.reports
UNION ALL
SELECT r.step, r.at, r.task, r.queue, r.data
FROM (SELECT 60 AS step UNION ALL SELECT 3600 UNION ALL SELECT 86400) s JOIN {schema}.rollups r
  ON r.step = s.step AND r.at > $1 - s.step * CAST(1000000 AS bigint) AND r.at < $2
WHERE (CAST($3 AS text) IS NULL OR r.task = $3) AND (CAST($4 AS text) IS NULL OR r.queue = $4)
