-- Declare a worker dead if its beat number is still this one, after every claim it has under way. $1 worker, $2 beats
WITH row AS MATERIALIZED (
  -- A claim holds the row for KEY SHARE, which only this lock waits for.
  SELECT id FROM {schema}.workers WHERE id = $1 AND beats = $2 FOR UPDATE
)
UPDATE {schema}.workers w SET alive = false FROM row WHERE w.id = row.id RETURNING 1
