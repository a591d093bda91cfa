-- The ledger: accepted, live, ended as completed, failed and cancelled, pruned, and that again by kind; in one statement,
-- so that the numbers belong together.
SELECT b.accepted + {last_number} - b.last_seq,
  (SELECT count(*) FROM jobs WHERE stage = 2) + (SELECT count(*) FROM jobs WHERE stage = -1)
  + (SELECT count(*) FROM jobs WHERE stage = 1)
  + (SELECT count(*) FROM jobs WHERE stage = 0)
  + (SELECT count(*) FROM jobs WHERE stage = 3),
  (SELECT count(*) FROM jobs WHERE stage >= 4 AND status = {completed}),
  (SELECT count(*) FROM jobs WHERE stage >= 4 AND status = {failed}),
  (SELECT count(*) FROM jobs WHERE stage >= 4 AND status = {cancelled}),
  b.pruned, b.pruned_completed, b.pruned_failed, b.pruned_cancelled
FROM books b
