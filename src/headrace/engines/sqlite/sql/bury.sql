-- Declare a living worker dead if its beat number is still this one, with whether suspects and others ran on it.
-- ?1 worker, ?2 beats
UPDATE workers SET
  beside_suspect = coalesce((
    SELECT min{suspect} = 0 AND max{suspect} = 1 FROM jobs j
    WHERE j.worker = ?1 AND j.stage = 3 AND j.status = 'running'), 0),
  alive = 0
WHERE id = ?1 AND beats = ?2 AND alive RETURNING 1
