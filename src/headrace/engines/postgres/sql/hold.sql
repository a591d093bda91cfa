-- Lock the jobs that a note may change: those that wait, and those with a cancelled parent or batch. Returns their
-- order numbers and records; no record if another has locked the job. $1 order numbers, $2 those of them with a
-- cancelled parent or batch, $3 the status of those that wait
WITH meant AS MATERIALIZED (
  SELECT j.seq FROM {schema}.jobs j
  WHERE j.seq = ANY ($1::text::bigint[]) AND (j.status = $3 OR j.seq = ANY ($2::text::bigint[]))
),
held AS MATERIALIZED (
  SELECT {record}
  FROM {schema}.jobs j JOIN {schema}.bodies b ON b.id = j.id
  WHERE j.seq = ANY (ARRAY(SELECT seq FROM meant))
  ORDER BY j.seq FOR NO KEY UPDATE OF j{wait}
)
SELECT m.seq AS meant, h.* FROM meant m LEFT JOIN held h ON h.seq = m.seq ORDER BY m.seq
