-- Lines of these profiles. [digest, …] → queue, digest, line
SELECT l.queue, p.digest, l.id
FROM {schema}.profiles p JOIN {schema}.lines l ON l.profile = p.id
WHERE p.live AND p.digest = ANY ($1::text[])
