-- All known workers, each with the number of jobs that it owns.
SELECT info, beat, beats, beat_at, alive, watched,
  (SELECT count(*) FROM {schema}.jobs j WHERE j.stage = 3 AND j.worker = w.id)
FROM {schema}.workers w
