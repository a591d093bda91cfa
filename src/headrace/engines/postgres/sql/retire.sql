-- Mark a worker as not alive, and free its duties; waits for its claims under way. A process that is no worker may have
-- duties, too. $1 worker
WITH row AS MATERIALIZED (SELECT id FROM {schema}.workers WHERE id = $1 FOR UPDATE),
freed AS (UPDATE {schema}.leases SET holder = NULL, until = 0 WHERE holder = $1)
UPDATE {schema}.workers w SET alive = false FROM row WHERE w.id = row.id
