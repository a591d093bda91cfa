-- The retention of a job's own: microseconds by status, as JSON; null: as the settings say. Ended jobs that have one are
-- found by when it is over.
ALTER TABLE jobs ADD COLUMN keep TEXT;
CREATE INDEX outlived ON jobs (finished_at + (keep ->> status)) WHERE stage >= 4 AND keep IS NOT NULL;
