-- Write down which lines an ask serves.
INSERT INTO served (ask, line)
SELECT ?1, id FROM lines
WHERE profile IN (SELECT value FROM json_each(?2)) AND (?3 IS NULL OR queue IN (SELECT value FROM json_each(?3)))
