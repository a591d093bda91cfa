-- Lock those of these jobs that have ended and are not locked. $1 order numbers
SELECT seq FROM {schema}.jobs WHERE seq = ANY ($1::text::bigint[]) AND stage >= 4 ORDER BY seq FOR UPDATE SKIP LOCKED
