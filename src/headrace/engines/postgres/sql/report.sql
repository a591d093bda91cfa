-- Store reports of progress, each if the job is still at its rev. From $1 on columns.REPORT, as texts of arrays
WITH reported AS (
  UPDATE {schema}.jobs j SET {report_sets}
  FROM unnest({report_arrays}) AS c ({report_names})
  WHERE j.seq = c.seq AND j.rev = c.rev_before
  RETURNING c.place
)
SELECT coalesce(json_agg(place), '[]')::text FROM reported
