-- Settings with keys that begin with this, by key. $1 prefix
SELECT key, value, rev FROM {schema}.settings WHERE substr(key, 1, length($1)) = $1 ORDER BY key{binary}
