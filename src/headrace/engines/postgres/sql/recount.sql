-- Take from a customer the stakes in lines of whose task and requirements it has no live job. $1 the customer, $2 its label
WITH live AS MATERIALIZED (
  SELECT DISTINCT coalesce(p.base, p.id) AS profile
  FROM (
    SELECT DISTINCT j.line FROM {schema}.labels a JOIN {schema}.jobs j ON j.seq = a.seq WHERE a.label = $2 AND j.stage < 4
  ) u JOIN {schema}.lines l ON l.id = u.line JOIN {schema}.profiles p ON p.id = l.profile
)
DELETE FROM {schema}.stakes s WHERE s.customer = $1 AND s.line NOT IN (
  SELECT l.id FROM {schema}.lines l JOIN {schema}.profiles p ON p.id = l.profile
  WHERE coalesce(p.base, p.id) IN (SELECT profile FROM live))
