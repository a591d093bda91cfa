-- Declare a living worker dead if its beat number is still this one, and give back its duties; waits for its claims under
-- way. $1 worker, $2 beats
WITH row AS MATERIALIZED (
  -- A claim locks the row with KEY SHARE, and only this lock waits for that.
  SELECT id FROM {schema}.workers WHERE id = $1 AND beats = $2 AND alive FOR UPDATE
),
freed AS (UPDATE {schema}.leases l SET holder = NULL, until = 0 FROM row WHERE l.holder = row.id)
UPDATE {schema}.workers w SET alive = false FROM row WHERE w.id = row.id RETURNING 1
