-- Of the pruned jobs, headrace's own, by how they had ended; those that were pruned before this count as the user's.
ALTER TABLE {schema}.pruned
  ADD COLUMN own_completed bigint NOT NULL DEFAULT 0,
  ADD COLUMN own_failed    bigint NOT NULL DEFAULT 0,
  ADD COLUMN own_cancelled bigint NOT NULL DEFAULT 0;
