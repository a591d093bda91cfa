-- Mark a living worker as not alive, store its record, and free its duties; waits for its claims under way. A process that
-- is no worker may have duties, too. $1 worker, $2 when, $3 its departure, $4 how many ids of jobs; $2 and $3 NULL: no
-- record
WITH row AS MATERIALIZED (
  SELECT id, info, beat, beats, beat_at FROM {schema}.workers WHERE id = $1 AND alive FOR UPDATE
),
freed AS (UPDATE {schema}.leases SET holder = NULL, until = 0 WHERE holder = $1),
{record_gone.sql terms=$2::bigint, $3::text, $4::bigint}
UPDATE {schema}.workers w SET alive = false FROM row WHERE w.id = row.id
