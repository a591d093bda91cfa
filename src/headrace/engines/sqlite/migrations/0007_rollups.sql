-- Of the pruned jobs, how many had ended in which way; those that were pruned before are in none of these.
ALTER TABLE books ADD COLUMN pruned_completed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE books ADD COLUMN pruned_failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE books ADD COLUMN pruned_cancelled INTEGER NOT NULL DEFAULT 0;

ALTER TABLE workers ADD COLUMN reported INTEGER NOT NULL DEFAULT 0;  -- the number of its last report that was kept

-- What workers hand in with their beats, as it comes.
CREATE TABLE reports (
  id   INTEGER PRIMARY KEY,
  data TEXT NOT NULL        -- [JSON], core.rollup.Rollup
) STRICT;

-- And added up. Of one moment, task and queue there may be several rows: readers add them up, too.
CREATE TABLE rollups (
  step  INTEGER NOT NULL,   -- seconds: a minute, an hour or a day
  at    INTEGER NOT NULL,   -- when it began
  task  TEXT NOT NULL,
  queue TEXT NOT NULL,
  data  TEXT NOT NULL       -- [JSON], core.rollup.Totals
) STRICT;
CREATE INDEX rollups_at ON rollups (step, at, task, queue);
