-- Store entries of running jobs, each if its worker still owns the job. From $1 on columns.APPEND, as texts of arrays;
-- entries: [[sql.entries.COLUMNS], …]. Returns the indexes of those that were stored. The lock is shared: a change that
-- takes a job from its owner waits for it. A job that another has locked is skipped.
WITH owned AS MATERIALIZED (
  SELECT a.place, a.entries, j.seq
  FROM unnest({append_arrays}) AS a ({append_names})
    JOIN {schema}.bodies b ON b.id = a.id
    JOIN {schema}.jobs j ON j.seq = b.seq
  WHERE j.worker = a.worker AND j.epoch = a.epoch AND j.status = 'running'
  ORDER BY j.seq
  FOR SHARE OF j SKIP LOCKED
),
kept AS (
  INSERT INTO {schema}.entries (seq, {entry})
  SELECT o.seq, {entry_values}
  FROM owned o CROSS JOIN LATERAL json_array_elements(o.entries::json) AS e (r)
  ON CONFLICT DO NOTHING
)
SELECT coalesce(json_agg(place), '[]')::text FROM owned
