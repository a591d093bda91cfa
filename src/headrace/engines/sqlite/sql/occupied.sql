-- The lines that an ask serves and that are not empty: whose they are, whether they have jobs without keys, and with
-- keys. ?1 its number
SELECT l.id, l.queue, p.task, p.customer, o.plain, o.keyed
FROM (
  SELECT line, EXISTS (SELECT 1 FROM jobs WHERE stage = 2 AND line = s.line) AS plain,
    EXISTS (SELECT 1 FROM heads WHERE line = s.line AND rank IS NOT NULL) AS keyed
  FROM served s WHERE ask = +?1) o
CROSS JOIN lines l ON l.id = o.line CROSS JOIN profiles p ON p.id = l.profile WHERE o.plain OR o.keyed
