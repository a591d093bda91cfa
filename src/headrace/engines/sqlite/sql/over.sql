-- The batches that are over and of which nobody said that what follows was submitted. ?1 the moment
UPDATE batches SET ended_at = coalesce(ended_at, ?1)
WHERE sealed AND NOT settled AND completed + failed + cancelled >= total
RETURNING id, created_at, touched_at, sealed, abandoned, total, completed, failed, cancelled, ended_at, settled, calls
