-- Whether a worker sends a new report; a row if so. ?1 worker, ?2 the number of its report
UPDATE workers SET reported = ?2 WHERE id = ?1 AND reported < ?2 RETURNING 1
