-- Remove those of these stakes of a customer for which it has no live job of the task and requirements. $1 the
-- customer, $2 its label, $3 subqueues, which are locked: an insert that has begun since finds out.
WITH live AS MATERIALIZED (
  SELECT DISTINCT coalesce(p.base, p.id) AS profile
  FROM (
    SELECT DISTINCT j.subqueue FROM {schema}.labels a JOIN {schema}.jobs j ON j.seq = a.seq
    WHERE a.label = $2 AND j.stage < 4
  ) u JOIN {schema}.subqueues l ON l.id = u.subqueue JOIN {schema}.profiles p ON p.id = l.profile
)
DELETE FROM {schema}.stakes s WHERE s.customer = $1 AND s.subqueue = ANY ($3::integer[]) AND s.subqueue NOT IN (
  SELECT l.id FROM {schema}.subqueues l JOIN {schema}.profiles p ON p.id = l.profile
  WHERE coalesce(p.base, p.id) IN (SELECT profile FROM live))
