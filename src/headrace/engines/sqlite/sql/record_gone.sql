-- Store the record of a worker that is gone from now on: engine.workers.GoneWorker. ?1 worker, ?2 when, ?3 its departure,
-- ?4 how many ids of jobs
INSERT INTO gone_workers (id, gone_at, departure, info, beat, beats, beat_at, holds, lost)
SELECT w.id, ?2, ?3, w.info, w.beat, w.beats, w.beat_at,
  (SELECT count(*) FROM jobs j WHERE j.stage = 3 AND j.worker = ?1),
  (SELECT json_group_array(hex(id)) FROM (
     SELECT j.id AS id FROM jobs j WHERE j.stage = 3 AND j.worker = ?1 ORDER BY j.seq LIMIT ?4 + 0))
FROM workers w WHERE w.id = ?1 ON CONFLICT (id) DO NOTHING
