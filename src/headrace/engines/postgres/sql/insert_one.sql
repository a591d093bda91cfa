-- Store one new job without relations, concurrency key and labels; fails if its id is stored already. $1 the id, $2 the
-- payload; $3 the count of collections for which the subqueue is valid, $4 the lock against collecting, $5 and $6 the
-- channel and the message of a hint, or null; $7 a block in which the span of time of its creation is listed already,
-- or -1; from $8 on columns.ONE, or columns.PLAIN. Returns the order number; no row if the subqueue is not valid.
WITH first AS MATERIALIZED (
  SELECT nextval('{schema}.seqs') AS seq
  -- The lock first: if a subqueue was collected before it was taken, the count has grown.
  WHERE CASE WHEN pg_advisory_xact_lock_shared($4) IS NOT NULL
    THEN (SELECT last_value FROM {schema}.collections) END = $3
),
stored AS (
  INSERT INTO {schema}.jobs (seq, id, {one_columns}, rev, epoch, unstarted_losses, unnamed)
  SELECT seq, $1, {one_values}, 1, 0, 0, 0 FROM first
),
kept AS (
  INSERT INTO {schema}.bodies (seq, id, payload, spec, created_at)
  SELECT seq, $1, $2, {one_spec}, {one_created_at} FROM first
),
-- As in list_blocks.sql, but for one job nothing has to be sorted or looked up.
listed AS (INSERT INTO {schema}.subqueue_blocks (subqueue, block) SELECT {one_subqueue}, seq >> 10 FROM first),
timed AS (
  INSERT INTO {schema}.time_blocks (block, bucket)
  SELECT seq >> 13, {one_created_at} >> 29 FROM first WHERE seq >> 13 <> $7
),
booked AS (INSERT INTO {schema}.ledger (accepted, pruned) SELECT 1, 0 FROM first)
SELECT seq, CASE WHEN $5::text IS NOT NULL THEN pg_notify($5, $6) END FROM first
