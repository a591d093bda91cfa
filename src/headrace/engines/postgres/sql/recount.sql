-- Take from a customer those of these stakes of whose task and requirements it has no live job. $1 the customer, $2 its
-- label, $3 lines, which are locked: an insert that has begun since finds out.
WITH live AS MATERIALIZED (
  SELECT DISTINCT coalesce(p.base, p.id) AS profile
  FROM (
    SELECT DISTINCT j.line FROM {schema}.labels a JOIN {schema}.jobs j ON j.seq = a.seq WHERE a.label = $2 AND j.stage < 4
  ) u JOIN {schema}.lines l ON l.id = u.line JOIN {schema}.profiles p ON p.id = l.profile
)
DELETE FROM {schema}.stakes s WHERE s.customer = $1 AND s.line = ANY ($3::integer[]) AND s.line NOT IN (
  SELECT l.id FROM {schema}.lines l JOIN {schema}.profiles p ON p.id = l.profile
  WHERE coalesce(p.base, p.id) IN (SELECT profile FROM live))
