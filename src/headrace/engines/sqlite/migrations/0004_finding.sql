-- What jobs are found by (engines/sql/finding.py). Nothing here is written by a claim or by the completion of a job: the
-- indexes have only jobs that ended badly, or to which something happened before their end.
ALTER TABLE jobs ADD COLUMN created_at INTEGER;  -- null: stored by a version that does not write it; it is in the spec
UPDATE jobs SET created_at = (
  SELECT unixepoch(substr(c, 1, 19) || iif(substr(c, 20, 1) = '.', substr(c, 27), substr(c, 20))) * 1000000
    + iif(substr(c, 20, 1) = '.', substr(c, 21, 6), 0)
  FROM (SELECT spec ->> 'created_at' AS c FROM bodies WHERE seq = jobs.seq));
CREATE INDEX unlisted ON jobs (created_at) WHERE created_at IS NULL;
CREATE INDEX reasons ON jobs (state ->> 7) WHERE stage = 5;
CREATE INDEX fingerprints ON jobs (state ->> 14) WHERE stage <> 4 AND state IS NOT NULL AND state ->> 14 IS NOT NULL;
CREATE INDEX suspects ON jobs (stage) WHERE stage <> 4 AND state IS NOT NULL AND state ->> 9 > 0;

-- In which blocks of 2^10 order numbers there are jobs of a line.
CREATE TABLE line_blocks (
  line  INTEGER NOT NULL,
  block INTEGER NOT NULL,
  PRIMARY KEY (line, block)
) STRICT, WITHOUT ROWID;
INSERT INTO line_blocks SELECT DISTINCT line, seq >> 10 FROM jobs;
-- Whoever moves a job to another line.
CREATE TRIGGER listed_again AFTER UPDATE OF line ON jobs WHEN new.line <> old.line BEGIN
  INSERT OR IGNORE INTO line_blocks VALUES (new.line, new.seq >> 10);
END;
-- In which blocks of 2^12 order numbers there are jobs that were created in a span of 2^29 microseconds.
CREATE TABLE time_blocks (
  block  INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  PRIMARY KEY (block, bucket)
) STRICT, WITHOUT ROWID;
INSERT INTO time_blocks SELECT DISTINCT seq >> 12, created_at >> 29 FROM jobs;

-- The labels 'c' + the customer and 'o' + the id of the job that is run again.
INSERT OR IGNORE INTO labels (seq, label)
SELECT seq, 'c' || (spec ->> 'customer') FROM bodies WHERE instr(spec, '"customer":') AND spec ->> 'customer' IS NOT NULL;
INSERT OR IGNORE INTO labels (seq, label)
SELECT seq, 'o' || (spec ->> 'rerun_of') FROM bodies WHERE instr(spec, '"rerun_of":') AND spec ->> 'rerun_of' IS NOT NULL;
