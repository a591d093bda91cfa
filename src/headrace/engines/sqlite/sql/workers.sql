-- Every known worker, with how many jobs the store gives to it.
SELECT info, beat, beats, beat_at, alive,
  (SELECT count(*) FROM jobs j WHERE j.worker = w.id AND j.stage = 3)
FROM workers w ORDER BY rowid
