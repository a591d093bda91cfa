-- Declare a living worker dead if its beat number is still this one, with whether a suspect and another job ran on it.
-- ?1 worker, ?2 beats, ?3 whether others died at the same time
UPDATE workers SET
  beside_suspect = coalesce((
    SELECT count(*) > 1 AND max{suspect} = 1 FROM jobs j
    WHERE j.worker = ?1 AND j.stage = 3 AND j.status = 'running'), 0),
  mass_death = ?3,
  alive = 0
WHERE id = ?1 AND beats = ?2 AND alive RETURNING 1
