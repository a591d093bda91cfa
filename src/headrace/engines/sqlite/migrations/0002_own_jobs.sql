-- Of the pruned jobs, headrace's own, by how they had ended; those that were pruned before this count as the user's.
ALTER TABLE books ADD COLUMN own_pruned_completed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE books ADD COLUMN own_pruned_failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE books ADD COLUMN own_pruned_cancelled INTEGER NOT NULL DEFAULT 0;
