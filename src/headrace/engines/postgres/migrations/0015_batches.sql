-- Whose a batch is, if all of its jobs are one customer's. Those from before are nobody's in particular.
ALTER TABLE {schema}.batches ADD COLUMN customer text;
CREATE INDEX batches_of_customer ON {schema}.batches (customer, created_at, id) WHERE customer IS NOT NULL;
