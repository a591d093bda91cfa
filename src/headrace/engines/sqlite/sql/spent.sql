-- What was used of rates. ?1 names
SELECT name, data FROM spent WHERE name IN (SELECT value FROM json_each(?1))
