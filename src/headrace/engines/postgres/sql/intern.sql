-- Make profiles and lines that are missing. [[queue, task, requirements, digest], …]
WITH wanted AS MATERIALIZED (
  SELECT r ->> 0 AS queue, r ->> 1 AS task, r ->> 2 AS requires, r ->> 3 AS digest
  FROM json_array_elements($1::text::json) AS e (r)
),
made AS (
  INSERT INTO {schema}.profiles (task, requires, digest, live)
  SELECT DISTINCT task, requires, digest, true FROM wanted ORDER BY digest
  ON CONFLICT (digest) DO UPDATE SET live = true WHERE NOT profiles.live
  RETURNING id, digest
),
known AS (
  SELECT id, digest FROM made
  UNION
  SELECT p.id, p.digest FROM {schema}.profiles p WHERE p.digest IN (SELECT digest FROM wanted) AND p.live
),
lined AS (
  INSERT INTO {schema}.lines (queue, profile)
  SELECT DISTINCT w.queue, k.id FROM wanted w JOIN known k USING (digest) ORDER BY 1, 2
  ON CONFLICT (queue, profile) DO NOTHING
  RETURNING 1
)
UPDATE {schema}.books
SET profiles_rev = profiles_rev + (SELECT (count(*) > 0)::integer FROM made),
  lines_rev = lines_rev + (SELECT (count(*) > 0)::integer FROM lined)
