-- The newest actions on settings. $1 how many
SELECT key, data FROM {schema}.audit ORDER BY id DESC LIMIT $1 + 0
