-- The ledger: accepted, live, ended, pruned; in one statement, so that the numbers belong together.
SELECT b.accepted,
  (SELECT count(*) FROM jobs WHERE stage = 2) + (SELECT count(*) FROM jobs WHERE stage = -1)
  + (SELECT count(*) FROM jobs WHERE stage = 1)
  + (SELECT count(*) FROM jobs WHERE stage = 0)
  + (SELECT count(*) FROM jobs WHERE stage = 3),
  (SELECT count(*) FROM jobs WHERE stage >= 4),
  b.pruned
FROM books b
