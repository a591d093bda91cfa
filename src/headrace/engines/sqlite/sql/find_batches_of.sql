-- The batches of a customer, newest first, below a moment and an id: ?1, ?2. ?3 how many, ?4 the customer
SELECT {batch}
FROM batches WHERE customer = ?4 AND (created_at, id) < (?1, ?2) ORDER BY created_at DESC, id DESC LIMIT ?3 + 0
