-- Which of some jobs are gone, have another rev than when they were read, or may have reported progress: their indexes.
-- [[id, rev], …]
SELECT e.key
FROM jsonb_each(?1) e LEFT JOIN jobs j ON j.id = unhex(e.value ->> 0, '-')
WHERE j.rev IS NOT e.value ->> 1 OR j.progress IS NOT NULL
