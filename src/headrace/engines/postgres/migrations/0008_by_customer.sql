-- In queues that are set by customer, each customer has lines, and these have profiles, of their own.
ALTER TABLE {schema}.profiles ADD COLUMN base integer;   -- of the line of a customer: the profile of the task and its
                                                         -- requirements
ALTER TABLE {schema}.profiles ADD COLUMN customer text;  -- whose it is; null: of jobs without a customer
CREATE INDEX profiles_of_base ON {schema}.profiles (base) WHERE base IS NOT NULL;
