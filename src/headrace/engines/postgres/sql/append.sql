-- Store entries of running jobs, each if its worker still owns the job. $1 to $5, as texts of arrays: place, id of the
-- job, worker, epoch, entries as [[kind, attempt, number, at, name, data], …]. Answers the places of those that were
-- stored. The lock is shared: whoever takes a job from its owner waits for it. A job that another has locked is
-- skipped.
WITH owned AS MATERIALIZED (
  SELECT a.place, a.entries, j.seq
  FROM unnest($1::text::integer[], $2::text::uuid[], $3::text::uuid[], $4::text::integer[], $5::text::text[])
      AS a (place, id, worker, epoch, entries)
    JOIN {schema}.bodies b ON b.id = a.id
    JOIN {schema}.jobs j ON j.seq = b.seq
  WHERE j.worker = a.worker AND j.epoch = a.epoch AND j.status = 'running'
  ORDER BY j.seq
  FOR SHARE OF j SKIP LOCKED
),
kept AS (
  INSERT INTO {schema}.entries (seq, kind, attempt, number, at, name, data)
  SELECT o.seq, e ->> 0, (e ->> 1)::integer, (e ->> 2)::integer, (e ->> 3)::bigint, e ->> 4, e ->> 5
  FROM owned o CROSS JOIN LATERAL json_array_elements(o.entries::json) AS e
  ON CONFLICT DO NOTHING
)
SELECT coalesce(json_agg(place), '[]')::text FROM owned
