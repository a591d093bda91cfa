-- Whether there are new reports, or rows have become another step. $1 minutes, $2 hours, $3 days before this
SELECT EXISTS (SELECT FROM {schema}.reports) OR EXISTS (
  SELECT FROM {schema}.rollups r
  WHERE (r.step = 60 AND r.at < $1) OR (r.step = 3600 AND r.at < $2) OR (r.step = 86400 AND r.at < $3))
