-- Take a duty that is free, or renew one's own: core.lease.taken; the token, if it is ours now.
INSERT INTO leases (name, holder, token, until) VALUES (?1, ?2, 1, ?4)
ON CONFLICT (name) DO UPDATE
SET token = token + (holder IS NOT excluded.holder), holder = excluded.holder, until = excluded.until
WHERE holder IS excluded.holder OR until <= ?3
RETURNING token
