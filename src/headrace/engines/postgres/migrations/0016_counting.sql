-- Jobs that failed and jobs that wait for others are counted by line again and again: with all that is counted in the
-- index, none of them is looked at.
DROP INDEX {schema}.unlucky;
CREATE INDEX unlucky ON {schema}.jobs (status, seq) INCLUDE (line, arrived_at) WHERE stage IN (0, 5);
