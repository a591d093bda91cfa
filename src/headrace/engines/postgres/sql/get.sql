-- Jobs by id. $1 ids
SELECT {record}
FROM {schema}.bodies b CROSS JOIN LATERAL (SELECT * FROM {schema}.jobs WHERE seq = b.seq LIMIT 1) j
WHERE b.id = ANY ($1::uuid[])
