-- Give a duty back. $1 name, $2 holder
UPDATE {schema}.leases SET holder = NULL, until = 0 WHERE name = $1 AND holder = $2
