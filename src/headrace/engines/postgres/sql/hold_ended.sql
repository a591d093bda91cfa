-- Hold these jobs, those that have ended and that nobody else holds. $1 order numbers
SELECT seq FROM {schema}.jobs WHERE seq = ANY ($1::text::bigint[]) AND stage >= 4 ORDER BY seq FOR UPDATE SKIP LOCKED
