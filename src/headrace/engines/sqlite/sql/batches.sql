-- The batches of some ids, as far as they are here.
SELECT {batch}
FROM batches WHERE id IN (SELECT unhex(value, '-') FROM jsonb_each(?1))
