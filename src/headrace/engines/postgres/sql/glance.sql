-- Whether there are notes; whether there are batches to process. $1 since when one is silent
SELECT EXISTS (SELECT 1 FROM {schema}.notes),
  EXISTS (SELECT 1 FROM {schema}.batch_counts)
  OR EXISTS (SELECT 1 FROM {schema}.batches WHERE NOT sealed AND touched_at <= $1)
  OR EXISTS (
    SELECT 1 FROM {schema}.batches WHERE sealed AND NOT settled AND completed + failed + cancelled >= total)
