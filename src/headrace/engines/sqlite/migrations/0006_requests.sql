-- The request key of a job: [task, key of its customer]. Beside what never changes, so that it is written once, and goes
-- with the job when that is pruned, whichever version does it.
ALTER TABLE bodies ADD COLUMN request TEXT;
CREATE UNIQUE INDEX requests ON bodies (request) WHERE request IS NOT NULL;
