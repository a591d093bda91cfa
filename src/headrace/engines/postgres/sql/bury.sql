-- Declare a living worker dead if its beat number is still this one, with whether a suspect and another ran on it, free its
-- duties and store its record; waits for its claims under way. $1 worker, $2 beats, $3 whether others died at the same
-- time, $4 when, $5 its departure, $6 how many ids of jobs; $4 and $5 NULL: no record
WITH row AS MATERIALIZED (
  -- A claim locks the row with KEY SHARE, and only this lock waits for that.
  SELECT id, info, beat, beats, beat_at FROM {schema}.workers WHERE id = $1 AND beats = $2 AND alive FOR UPDATE
),
ran AS MATERIALIZED (
  SELECT coalesce(bool_or{suspect} AND count(*) > 1, false) AS together FROM {schema}.jobs j
  WHERE j.worker = $1 AND j.stage = 3 AND j.status = 'running'
),
freed AS (UPDATE {schema}.leases l SET holder = NULL, until = 0 FROM row WHERE l.holder = row.id),
{record_gone.sql terms=$4::bigint, $5::text, $6::bigint}
UPDATE {schema}.workers w SET alive = false, beside_suspect = ran.together, mass_death = $3
FROM row, ran WHERE w.id = row.id RETURNING 1
