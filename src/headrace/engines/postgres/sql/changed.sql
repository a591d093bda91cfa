-- Which of some jobs are gone, have another rev than when they were read, or may have reported progress. $1 ids; $2 revs
SELECT k.id
FROM unnest($1::uuid[], $2::bigint[]) AS k (id, rev)
  LEFT JOIN LATERAL (SELECT seq FROM {schema}.bodies WHERE id = k.id LIMIT 1) b ON true
  LEFT JOIN LATERAL (SELECT rev, progress FROM {schema}.jobs WHERE seq = b.seq LIMIT 1) j ON true
WHERE j.rev IS DISTINCT FROM k.rev OR j.progress IS NOT NULL
