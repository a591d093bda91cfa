-- Candidates: every job, newest first.
WITH source (seq) AS (SELECT seq FROM jobs WHERE seq < ?1)
