-- Take a duty that is free, or renew one's own: core.lifecycle.duty.taken; returns the token, if it is ours now. $1
-- name, $2 holder, $3 now, $4 until, $5 the latest that it can have been taken for
INSERT INTO {schema}.leases AS l (name, holder, token, until) VALUES ($1, $2, 1, $4)
ON CONFLICT (name) DO UPDATE
SET token = l.token + CASE WHEN l.holder IS NOT DISTINCT FROM excluded.holder THEN 0 ELSE 1 END, holder = excluded.holder,
  until = excluded.until
WHERE l.holder IS NOT DISTINCT FROM excluded.holder OR l.until <= $3 OR l.until > $5
RETURNING token
