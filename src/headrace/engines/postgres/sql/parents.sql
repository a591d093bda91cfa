-- The statuses of the jobs that these jobs wait for; null for one that is gone. Read after these are locked: if two of
-- those end at the same moment, the transaction with the later note sees the end of both. $1 order numbers
SELECT c.seq, array_agg(DISTINCT j.status)
FROM unnest($1::text::bigint[]) AS c (seq)
  CROSS JOIN LATERAL (SELECT parent FROM {schema}.waits WHERE child = c.seq OFFSET 0) w
  LEFT JOIN LATERAL (SELECT status FROM {schema}.jobs WHERE seq = w.parent LIMIT 1) j ON true
GROUP BY c.seq
