-- Jobs below an order number that may match as seen at a moment, newest first. $1 below, $2 how many, $3 the moment,
-- $4 statuses, $5 task, $6 queue, $7 and $8 labels, $9 text in lower case, $10 stages
-- and $11 statuses, stored ones, that the wanted may be found in.
-- What is plain ASCII is searched here; for the rest lower() knows too little, and whoever asked looks again.
SELECT {record}
FROM {schema}.jobs j
  JOIN {schema}.bodies b ON b.seq = j.seq
  JOIN {schema}.lines l ON l.id = j.line
  JOIN {schema}.profiles p ON p.id = l.profile
WHERE j.seq < $1
  AND ($10::smallint[] IS NULL OR j.stage = ANY ($10))
  AND ($11::text[] IS NULL OR j.status = ANY ($11))
  AND ($4::text[] IS NULL OR CASE WHEN j.stage = 1 AND j.available_at <= $3 THEN 'queued' ELSE j.status END = ANY ($4))
  AND ($5::text IS NULL OR p.task = $5)
  AND ($6::text IS NULL OR l.queue = $6)
  AND ($7::text IS NULL OR EXISTS (SELECT 1 FROM {schema}.labels t WHERE t.seq = j.seq AND t.label = $7))
  AND ($8::text IS NULL OR EXISTS (SELECT 1 FROM {schema}.labels t WHERE t.seq = j.seq AND t.label = $8))
  AND ($9::text IS NULL
    OR position($9 IN b.id::text) > 0
    OR octet_length(p.task) <> length(p.task) OR position($9 IN lower(p.task)) > 0
    OR octet_length(b.payload) <> length(b.payload) OR position($9 IN lower(b.payload)) > 0
    OR j.error IS NOT NULL)
ORDER BY j.seq DESC
LIMIT $2
