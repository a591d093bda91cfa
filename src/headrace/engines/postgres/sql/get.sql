-- Jobs by id. $1 ids
SELECT {record}
FROM {schema}.bodies b JOIN {schema}.jobs j ON j.seq = b.seq
WHERE b.id = ANY ($1::uuid[])
