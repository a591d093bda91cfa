-- The books: accepted, live, ended, pruned; in one look, so that they belong together.
SELECT b.accepted,
  (SELECT count(*) FROM jobs WHERE status = 'queued')
  + (SELECT count(*) FROM jobs WHERE status IN ('scheduled', 'retrying'))
  + (SELECT count(*) FROM jobs WHERE status IN ('pending', 'waiting'))
  + (SELECT count(*) FROM jobs WHERE status IN ('assigned', 'accepted', 'running')),
  (SELECT count(*) FROM jobs WHERE status IN ('completed', 'failed', 'cancelled')),
  b.pruned
FROM books b
