-- In queues that are set by customer, each customer has lines, and these have profiles, of their own.
ALTER TABLE profiles ADD COLUMN base INTEGER;   -- of the line of a customer: the profile of the task and its requirements
ALTER TABLE profiles ADD COLUMN customer TEXT;  -- whose it is; null: of jobs without a customer
CREATE INDEX profiles_of_base ON profiles (base) WHERE base IS NOT NULL;
