-- How those stand whom these jobs wait for; null: gone. Read after the jobs are held: of two parents that end at the same
-- moment, the one that is told later is told with both. $1 order numbers
SELECT c.seq, array_agg(DISTINCT j.status)
FROM unnest($1::text::bigint[]) AS c (seq)
  CROSS JOIN LATERAL (SELECT parent FROM {schema}.waits WHERE child = c.seq OFFSET 0) w
  LEFT JOIN LATERAL (SELECT status FROM {schema}.jobs WHERE seq = w.parent LIMIT 1) j ON true
GROUP BY c.seq
