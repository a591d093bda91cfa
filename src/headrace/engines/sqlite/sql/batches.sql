-- The batches with some ids, as far as they are stored.
SELECT {batch}
FROM batches WHERE id IN (SELECT unhex(value, '-') FROM jsonb_each(?1))
