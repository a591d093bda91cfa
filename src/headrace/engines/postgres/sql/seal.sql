-- Seal a batch (core.batch.sealed); whether it is stored. $1 id, $2 the moment
WITH closed AS (
  UPDATE {schema}.batches SET sealed = true, touched_at = greatest(touched_at, $2) WHERE id = $1 AND NOT sealed
)
SELECT EXISTS (SELECT 1 FROM {schema}.batches WHERE id = $1)
