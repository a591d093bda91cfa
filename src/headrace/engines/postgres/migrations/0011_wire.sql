-- The seconds that the handler took in the attempt that completed the job, where they were measured; see complete.sql.
ALTER TABLE {schema}.jobs ADD COLUMN took double precision;
