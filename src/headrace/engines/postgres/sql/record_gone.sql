recorded AS (
  -- engine.workers.GoneWorker
  INSERT INTO {schema}.gone_workers (id, gone_at, departure, info, beat, beats, beat_at, holds, lost)
  SELECT row.id, d.at, d.departure, row.info, row.beat, row.beats, row.beat_at,
    (SELECT count(*) FROM {schema}.jobs j WHERE j.stage = 3 AND j.worker = $1),
    (SELECT coalesce(json_agg(held.id ORDER BY held.seq), '[]')::text FROM (
       SELECT j.id, j.seq FROM {schema}.jobs j WHERE j.stage = 3 AND j.worker = $1 ORDER BY j.seq LIMIT d.ids) held)
  FROM row, (VALUES ({terms})) AS d (at, departure, ids) WHERE d.at IS NOT NULL
  ON CONFLICT (id) DO NOTHING
)
