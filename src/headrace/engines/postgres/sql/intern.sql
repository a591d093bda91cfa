-- Make profiles and subqueues that are missing. [[queue, task, what the profile requires, its digest; for the subqueue
-- of a customer also the customer, and requirements and digest of its base profile], …]
WITH wanted AS MATERIALIZED (
  SELECT r ->> 0 AS queue, r ->> 1 AS task, r ->> 2 AS requires, r ->> 3 AS digest, r ->> 4 AS customer,
    r ->> 5 AS base_requires, r ->> 6 AS base
  FROM json_array_elements($1::text::json) AS e (r)
),
made AS (
  INSERT INTO {schema}.profiles (task, requires, digest, live)
  SELECT DISTINCT task, coalesce(base_requires, requires), coalesce(base, digest), true FROM wanted ORDER BY 3
  ON CONFLICT (digest) DO UPDATE SET live = true WHERE NOT profiles.live
  RETURNING id, digest
),
bases AS MATERIALIZED (
  SELECT id, digest FROM made
  UNION
  SELECT p.id, p.digest FROM {schema}.profiles p WHERE p.digest IN (SELECT base FROM wanted) AND p.live
),
made_of AS (
  INSERT INTO {schema}.profiles (task, requires, digest, live, base, customer)
  SELECT DISTINCT w.task, w.requires, w.digest, true, b.id, w.customer
  FROM wanted w JOIN bases b ON b.digest = w.base ORDER BY 3
  ON CONFLICT (digest) DO UPDATE SET live = true, base = excluded.base
  WHERE NOT profiles.live OR profiles.base <> excluded.base
  RETURNING id, digest
),
known AS (
  SELECT id, digest FROM made
  UNION
  SELECT id, digest FROM made_of
  UNION
  SELECT p.id, p.digest FROM {schema}.profiles p WHERE p.digest IN (SELECT digest FROM wanted) AND p.live
),
added AS (
  INSERT INTO {schema}.subqueues (queue, profile)
  SELECT DISTINCT w.queue, k.id FROM wanted w JOIN known k USING (digest) ORDER BY 1, 2
  ON CONFLICT (queue, profile) DO NOTHING
  RETURNING 1
)
UPDATE {schema}.books
SET profiles_rev = profiles_rev + (SELECT (count(*) > 0)::integer FROM made),
  subqueues_rev = subqueues_rev + (SELECT (count(*) > 0)::integer FROM added)
