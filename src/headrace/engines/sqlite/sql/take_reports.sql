-- Take new reports, the oldest first. ?1 how many
DELETE FROM reports WHERE id IN (SELECT id FROM reports ORDER BY id LIMIT ?1 + 0) RETURNING 0, 0, '', '', data
