-- Remove the records of workers that went at a moment or before, the first to go first. $1 the moment, $2 how many
DELETE FROM {schema}.gone_workers WHERE id IN (
  SELECT id FROM {schema}.gone_workers WHERE gone_at <= $1 ORDER BY gone_at, id LIMIT $2 + 0)
RETURNING 1
