-- Record for how long a beat was seen, if it is still that one. $1 worker, $2 beats, $3 JSON: beats, looks, seconds
UPDATE {schema}.workers SET watched = $3 WHERE id = $1 AND beats = $2 AND alive
