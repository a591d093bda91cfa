-- The ledger: accepted, live, ended as completed, failed and cancelled, pruned, and that again by kind; then headrace's own
-- of those: live, ended, pruned by kind. In one statement, so that the numbers belong together.
SELECT b.accepted + {last_number} - b.last_seq, j.live, j.completed, j.failed, j.cancelled,
  b.pruned, b.pruned_completed, b.pruned_failed, b.pruned_cancelled,
  j.own_live, j.own_completed, j.own_failed, j.own_cancelled,
  b.own_pruned_completed, b.own_pruned_failed, b.own_pruned_cancelled
FROM books b CROSS JOIN (
  SELECT coalesce(sum(jobs) FILTER (WHERE ended IS NULL), 0) AS live,
    coalesce(sum(jobs) FILTER (WHERE ended = {completed}), 0) AS completed,
    coalesce(sum(jobs) FILTER (WHERE ended = {failed}), 0) AS failed,
    coalesce(sum(jobs) FILTER (WHERE ended = {cancelled}), 0) AS cancelled,
    coalesce(sum(jobs) FILTER (WHERE ended IS NULL AND {own_task}), 0) AS own_live,
    coalesce(sum(jobs) FILTER (WHERE ended = {completed} AND {own_task}), 0) AS own_completed,
    coalesce(sum(jobs) FILTER (WHERE ended = {failed} AND {own_task}), 0) AS own_failed,
    coalesce(sum(jobs) FILTER (WHERE ended = {cancelled} AND {own_task}), 0) AS own_cancelled
  FROM (
    SELECT subqueue, NULL AS ended, count(*) AS jobs FROM jobs WHERE stage = 2 GROUP BY subqueue
    UNION ALL
    SELECT subqueue, NULL, count(*) FROM jobs WHERE stage = -1 GROUP BY subqueue
    UNION ALL
    SELECT subqueue, NULL, count(*) FROM jobs WHERE stage = 1 GROUP BY subqueue
    UNION ALL
    SELECT subqueue, NULL, count(*) FROM jobs WHERE stage = 0 GROUP BY subqueue
    UNION ALL
    SELECT subqueue, NULL, count(*) FROM jobs WHERE stage = 3 GROUP BY subqueue
    UNION ALL
    SELECT subqueue, status, count(*) FROM jobs WHERE stage >= 4 GROUP BY subqueue, status
  ) c CROSS JOIN subqueues l ON l.id = c.subqueue CROSS JOIN profiles p ON p.id = l.profile
) j
