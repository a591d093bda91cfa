-- Forget the lines no job stands in, and count the profiles no live job needs as not live. Under the lock.
DELETE FROM {schema}.lines l WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.line = l.id);
DELETE FROM {schema}.profiles p WHERE NOT EXISTS (SELECT 1 FROM {schema}.lines l WHERE l.profile = p.id);
UPDATE {schema}.profiles SET live = false WHERE live AND id NOT IN (
  SELECT l.profile FROM {schema}.lines l JOIN {schema}.jobs j ON j.line = l.id AND j.stage < 4);
UPDATE {schema}.books SET lines_rev = lines_rev + 1;
SELECT nextval('{schema}.collections');
