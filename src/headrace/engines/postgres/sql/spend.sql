-- Store what was used of rates, and forget what no longer counts. $1 names, $2 data, $3 until, $4 the moment
WITH old AS (DELETE FROM {schema}.spent WHERE until <= $4 AND NOT name = ANY ($1::text[]))
INSERT INTO {schema}.spent (name, data, until) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
ON CONFLICT (name) DO UPDATE SET data = excluded.data, until = excluded.until
