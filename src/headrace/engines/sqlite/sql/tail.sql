-- The first entries of one kind behind a cursor. ?1 id of the job, ?2 kind, ?3 and ?4 cursor, ?5 most
SELECT attempt, number, at, name, data FROM entries
WHERE seq = (SELECT seq FROM jobs WHERE id = ?1) AND kind = ?2 AND (attempt, number) > (?3, ?4)
ORDER BY attempt, number LIMIT ?5 + 0
