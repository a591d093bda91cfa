-- Which of these digests no live profile has. $1 digests
SELECT ARRAY(
  SELECT t.digest FROM unnest($1::text[]) AS t (digest)
  WHERE NOT EXISTS (SELECT 1 FROM {schema}.profiles p WHERE p.digest = t.digest AND p.live))
