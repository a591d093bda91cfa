-- Which of these jobs are not locked at this moment. $1 order numbers
SELECT seq FROM {schema}.jobs WHERE seq = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
