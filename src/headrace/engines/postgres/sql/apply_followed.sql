-- The notes of changes, and what they add to the counts of batches.
, told AS (
  -- The note of a cancel has the id of the job, so that its children are found even if the job is gone.
  INSERT INTO {schema}.notes (kind, seq, batch)
  SELECT n.kind, c.seq, CASE n.kind WHEN 'c' THEN (SELECT j.id FROM {schema}.jobs j WHERE j.seq = c.seq) END
  FROM changed c CROSS JOIN LATERAL unnest(string_to_array(c.notes, NULL)) AS n (kind)
  WHERE n.kind <> 'e' OR c.place < 0
),
counted AS (
  INSERT INTO {schema}.batch_counts (batch, total, completed, failed, cancelled)
  SELECT (tally::json ->> 0)::uuid, 0, sum((tally::json ->> 1)::integer), sum((tally::json ->> 2)::integer),
    sum((tally::json ->> 3)::integer)
  FROM changed WHERE tally IS NOT NULL GROUP BY 1
)
