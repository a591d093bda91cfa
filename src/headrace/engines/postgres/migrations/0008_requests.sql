-- The request key of a job: [task, key of its customer], or the digest of that. Beside what never changes, so that it is
-- written once, and goes with the job when that is pruned, whichever version does it.
ALTER TABLE {schema}.bodies ADD COLUMN request text;
CREATE UNIQUE INDEX requests ON {schema}.bodies (request) WHERE request IS NOT NULL;
