-- What jobs are found by (engines/sql/finding.py). Nothing here is written by a claim or by the completion of a job: the
-- indexes on jobs have only those that ended badly, were never in line, or to which something happened before their end.

-- 0: stored before this column was, listed below; null: stored by a version that does not write it, and listed nowhere.
ALTER TABLE {schema}.bodies ADD COLUMN created_at bigint DEFAULT 0;
ALTER TABLE {schema}.bodies ALTER COLUMN created_at DROP DEFAULT;
CREATE INDEX unlisted ON {schema}.bodies (seq) WHERE created_at IS NULL;

CREATE INDEX unlucky ON {schema}.jobs (status, seq) WHERE stage IN (0, 5);
CREATE INDEX reasons ON {schema}.jobs ((state::json ->> 7), seq) WHERE stage = 5;
CREATE INDEX fingerprints ON {schema}.jobs ((state::json ->> 14), seq)
  WHERE stage <> 4 AND state IS NOT NULL AND (state::json ->> 14) IS NOT NULL;
CREATE INDEX suspects ON {schema}.jobs (seq)
  WHERE stage <> 4 AND state IS NOT NULL AND (state::json ->> 9)::integer > 0;

-- In which blocks of 2^10 order numbers there are jobs of a line; only ever added, so that two inserts never meet.
CREATE TABLE {schema}.line_blocks (
  block bigint NOT NULL,
  line  integer NOT NULL
);
INSERT INTO {schema}.line_blocks (line, block) SELECT DISTINCT line, seq >> 10 FROM {schema}.jobs;
CREATE INDEX blocks_of_line ON {schema}.line_blocks (line, block);
-- Whoever moves a job to another line.
CREATE FUNCTION {schema}.list_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO %I.line_blocks (line, block) VALUES ($1, $2)', tg_table_schema) USING new.line, new.seq >> 10;
  RETURN NULL;
END $$;
CREATE TRIGGER listed_again AFTER UPDATE OF line ON {schema}.jobs FOR EACH ROW
WHEN (old.line <> new.line) EXECUTE FUNCTION {schema}.list_again();
-- In which blocks of 2^13 order numbers there are jobs that were created in a span of 2^29 microseconds.
CREATE TABLE {schema}.time_blocks (
  block  bigint NOT NULL,
  bucket bigint NOT NULL
);
INSERT INTO {schema}.time_blocks (block, bucket)
SELECT DISTINCT seq >> 13, (extract(epoch FROM (spec::json ->> 'created_at')::timestamptz) * 1000000)::bigint >> 29
FROM {schema}.bodies;
CREATE INDEX times_of_block ON {schema}.time_blocks (block, bucket);

-- The labels 'c' + the customer, a long one by its digest, and 'o' + the id of the job that is run again.
INSERT INTO {schema}.labels (seq, label)
SELECT f.seq, CASE WHEN length(f.label) <= 500 THEN f.label
  ELSE left(f.label, 1) || encode(sha256(convert_to(f.label, 'UTF8')), 'hex') END
FROM (
  SELECT seq, 'c' || (spec::json ->> 'customer') AS label FROM {schema}.bodies WHERE position('"customer":' IN spec) > 0
  UNION ALL
  SELECT seq, 'o' || (spec::json ->> 'rerun_of') FROM {schema}.bodies WHERE position('"rerun_of":' IN spec) > 0
) f
WHERE f.label IS NOT NULL
ON CONFLICT DO NOTHING;
