-- Forget the subqueues that no job is in, and mark the profiles that no live job needs as not live.
DELETE FROM subqueues WHERE id NOT IN (SELECT DISTINCT subqueue FROM jobs);
DELETE FROM heads WHERE subqueue NOT IN (SELECT id FROM subqueues);
DELETE FROM subqueue_blocks WHERE subqueue NOT IN (SELECT id FROM subqueues);
DELETE FROM stakes WHERE subqueue NOT IN (SELECT id FROM subqueues);
DELETE FROM profiles WHERE base IS NOT NULL AND id NOT IN (SELECT profile FROM subqueues);
DELETE FROM profiles WHERE base IS NULL AND id NOT IN (SELECT profile FROM subqueues)
  AND id NOT IN (SELECT base FROM profiles WHERE base IS NOT NULL);
UPDATE profiles SET live = 0 WHERE base IS NOT NULL AND id NOT IN (
  SELECT profile FROM subqueues WHERE id IN (SELECT subqueue FROM jobs WHERE stage < 4));
UPDATE profiles SET live = 0 WHERE base IS NULL AND id NOT IN (
  SELECT profile FROM subqueues WHERE id IN (SELECT subqueue FROM jobs WHERE stage < 4))
  AND id NOT IN (SELECT base FROM profiles WHERE base IS NOT NULL AND live);
UPDATE books SET collected = collected + 1, subqueues_rev = subqueues_rev + 1;
