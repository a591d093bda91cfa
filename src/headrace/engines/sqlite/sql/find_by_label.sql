-- Candidates: the jobs with a label.
WITH source (seq) AS (SELECT seq FROM labels WHERE label = ?8 AND seq < ?1)
