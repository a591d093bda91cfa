-- Forget the subqueues that no job is in, and mark the profiles that no live job needs as not live; returns whether
-- there were any. Runs under the lock, and reads every job once.
WITH used AS MATERIALIZED (
  SELECT l.id, l.profile, u.live
  FROM (SELECT subqueue, bool_or(stage < 4) AS live FROM {schema}.jobs GROUP BY subqueue) u
    JOIN {schema}.subqueues l ON l.id = u.subqueue
),
gone AS (
  DELETE FROM {schema}.subqueues WHERE id NOT IN (SELECT id FROM used) RETURNING 1
),
gone_heads AS (DELETE FROM {schema}.heads WHERE subqueue NOT IN (SELECT id FROM used)),
gone_blocks AS (DELETE FROM {schema}.subqueue_blocks WHERE subqueue NOT IN (SELECT id FROM used)),
gone_stakes AS (DELETE FROM {schema}.stakes WHERE subqueue NOT IN (SELECT id FROM used)),
gone_arrivals AS (DELETE FROM {schema}.arrivals WHERE subqueue NOT IN (SELECT id FROM used)),
-- The profile of a customer's subqueue has a base profile, which is needed as long as it is.
needed AS MATERIALIZED (
  SELECT id, bool_or(live) AS live FROM (
    SELECT profile AS id, live FROM used
    UNION ALL
    SELECT p.base, u.live FROM used u JOIN {schema}.profiles p ON p.id = u.profile WHERE p.base IS NOT NULL
  ) n GROUP BY id
),
dropped AS (
  DELETE FROM {schema}.profiles WHERE id NOT IN (SELECT id FROM needed) RETURNING 1
),
rested AS (
  UPDATE {schema}.profiles SET live = false
  WHERE live AND id IN (SELECT id FROM needed WHERE NOT live)
  RETURNING 1
),
found AS MATERIALIZED (
  SELECT EXISTS (SELECT 1 FROM gone) OR EXISTS (SELECT 1 FROM dropped) OR EXISTS (SELECT 1 FROM rested) AS some_are
),
-- From now on, the subqueues that sessions remember are not valid.
booked AS (UPDATE {schema}.books SET subqueues_rev = subqueues_rev + 1 WHERE (SELECT some_are FROM found))
SELECT some_are, CASE WHEN some_are THEN nextval('{schema}.collections') END FROM found
