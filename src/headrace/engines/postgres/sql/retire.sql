-- Mark a worker as not alive, and give back its duties; waits for its claims under way. $1 worker
WITH row AS MATERIALIZED (SELECT id FROM {schema}.workers WHERE id = $1 FOR UPDATE),
freed AS (UPDATE {schema}.leases l SET holder = NULL, until = 0 FROM row WHERE l.holder = row.id)
UPDATE {schema}.workers w SET alive = false FROM row WHERE w.id = row.id
