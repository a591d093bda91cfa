-- Mark a worker as not alive; waits for its claims under way. $1 worker
WITH row AS MATERIALIZED (SELECT id FROM {schema}.workers WHERE id = $1 FOR UPDATE)
UPDATE {schema}.workers w SET alive = false FROM row WHERE w.id = row.id
