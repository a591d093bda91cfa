-- Of the pruned jobs, how many had ended in which way, as deltas that are only ever added, beside those of the ledger:
-- workers of the version before sum that one up without these columns. Those that were pruned before are in none of them.
CREATE TABLE {schema}.pruned (
  completed bigint NOT NULL,
  failed    bigint NOT NULL,
  cancelled bigint NOT NULL
);

ALTER TABLE {schema}.workers ADD COLUMN reported bigint NOT NULL DEFAULT 0;  -- the number of its last report that was kept

-- What workers hand in with their beats, as it comes: no two of them ever meet in one row.
CREATE TABLE {schema}.reports (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  data text NOT NULL        -- [JSON], core.rollup.Rollup
) WITH (
  -- Each row lives for a minute.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- And added up. Of one moment, task and queue there may be several rows: readers add them up, too.
CREATE TABLE {schema}.rollups (
  at    bigint NOT NULL,    -- when it began
  step  integer NOT NULL,   -- seconds: a minute, an hour or a day
  task  text NOT NULL,
  queue text NOT NULL,
  data  text NOT NULL       -- [JSON], core.rollup.Totals
) WITH (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX rollups_at ON {schema}.rollups (step, at);
