-- Subqueues of these profiles. [digest, …] → queue, digest, subqueue
SELECT l.queue, p.digest, l.id
FROM {schema}.profiles p JOIN {schema}.subqueues l ON l.profile = p.id
WHERE p.live AND p.digest = ANY ($1::text[])
