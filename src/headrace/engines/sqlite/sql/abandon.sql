-- Seal and mark the batches without new jobs since a moment.
UPDATE batches SET sealed = 1, abandoned = 1 WHERE NOT sealed AND touched_at <= ?1
