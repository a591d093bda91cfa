-- Remember that these keys had their turn. $1 tasks, $2 keys, $3 the moment
INSERT INTO {schema}.turns_taken (task, key, last) SELECT task, key, $3 FROM unnest($1::text[], $2::text[]) AS t (task, key)
ORDER BY task, key
ON CONFLICT (task, key) DO UPDATE SET last = greatest(turns_taken.last, excluded.last)
