-- What was used of rates. $1 names
SELECT name, data FROM {schema}.spent WHERE name = ANY ($1::text[])
