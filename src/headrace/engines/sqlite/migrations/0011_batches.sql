-- Whose a batch is, if all of its jobs are one customer's. Those from before are nobody's in particular.
ALTER TABLE batches ADD COLUMN customer TEXT;
CREATE INDEX batches_of_customer ON batches (customer, created_at, id) WHERE customer IS NOT NULL;
