-- Forget the dead that no job names.
DELETE FROM workers
WHERE NOT alive AND NOT EXISTS (
  SELECT 1 FROM jobs j WHERE j.worker = workers.id AND j.stage = 3)
