-- Hold the gates of these names, everybody in the same order; those that are there. $1 names
SELECT name FROM {schema}.gates WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE
