-- The attempts and the events of one job: [[[number, folded, until, data], …], [event, …]].
SELECT
  (SELECT coalesce(json_agg(json_build_array(a.number, a.folded, a.until, a.data::json) ORDER BY a.number), '[]')::text
   FROM (
     SELECT number, folded, until, data FROM {schema}.attempts WHERE seq = b.seq
     UNION ALL
     -- The one that completed the job.
     SELECT number, 0, NULL, json_build_array({past_of_completed})::text
     FROM {schema}.jobs WHERE seq = b.seq AND number IS NOT NULL
   ) a),
  (SELECT coalesce(json_agg(e.data::json ORDER BY e.id), '[]')::text FROM {schema}.events e WHERE e.seq = b.seq)
FROM {schema}.bodies b WHERE b.id = $1
