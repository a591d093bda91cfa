-- Make a worker known. $1 worker, $2 info, $3 beat, $4 the moment
INSERT INTO {schema}.workers (id, info, beat, beats, beat_at, alive) VALUES ($1, $2, $3, 0, $4, true) ON CONFLICT (id) DO NOTHING
