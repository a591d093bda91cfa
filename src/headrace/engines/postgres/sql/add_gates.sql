-- Make gates of these names where there are none. $1 names
INSERT INTO {schema}.gates (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING
