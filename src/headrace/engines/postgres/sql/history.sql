-- The attempts and the events of one job: [[[number, folded, until, data], …], [event, …]].
SELECT
  (SELECT coalesce(json_agg(json_build_array(a.number, a.folded, a.until, a.data::json) ORDER BY a.number), '[]')::text
   FROM (
     SELECT number, folded, until, data FROM {schema}.attempts WHERE seq = b.seq
     UNION ALL
     SELECT number, 0, NULL, attempt FROM {schema}.jobs WHERE seq = b.seq AND attempt IS NOT NULL
   ) a),
  (SELECT coalesce(json_agg(e.data::json ORDER BY e.id), '[]')::text FROM {schema}.events e WHERE e.seq = b.seq)
FROM {schema}.bodies b WHERE b.id = $1
