-- The retention of a job's own: microseconds by status, as JSON; null: as the settings say. Ended jobs that have one are
-- found by when it is over.
ALTER TABLE {schema}.jobs ADD COLUMN keep text;
CREATE INDEX outlived ON {schema}.jobs ((finished_at + (keep::json ->> status)::bigint)) WHERE stage >= 4 AND keep IS NOT NULL;
