-- Forget the lines that no job is in, and mark the profiles that no live job needs as not live.
DELETE FROM lines WHERE id NOT IN (SELECT DISTINCT line FROM jobs);
DELETE FROM heads WHERE line NOT IN (SELECT id FROM lines);
DELETE FROM line_blocks WHERE line NOT IN (SELECT id FROM lines);
DELETE FROM stakes WHERE line NOT IN (SELECT id FROM lines);
DELETE FROM profiles WHERE base IS NOT NULL AND id NOT IN (SELECT profile FROM lines);
DELETE FROM profiles WHERE base IS NULL AND id NOT IN (SELECT profile FROM lines)
  AND id NOT IN (SELECT base FROM profiles WHERE base IS NOT NULL);
UPDATE profiles SET live = 0 WHERE base IS NOT NULL AND id NOT IN (
  SELECT profile FROM lines WHERE id IN (SELECT line FROM jobs WHERE stage < 4));
UPDATE profiles SET live = 0 WHERE base IS NULL AND id NOT IN (
  SELECT profile FROM lines WHERE id IN (SELECT line FROM jobs WHERE stage < 4))
  AND id NOT IN (SELECT base FROM profiles WHERE base IS NOT NULL AND live);
UPDATE books SET collected = collected + 1, lines_rev = lines_rev + 1;
