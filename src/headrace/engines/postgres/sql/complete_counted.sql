-- What completed jobs add to the counts of their batches.
, counted AS (
  INSERT INTO {schema}.batch_counts (batch, total, completed, failed, cancelled)
  SELECT batch::uuid, 0, count(*), 0, 0 FROM completed WHERE batch IS NOT NULL GROUP BY batch
)
