-- The ledger: accepted, live, ended as completed, failed and cancelled, pruned, and that again by kind; then headrace's own
-- of those: live, ended, pruned by kind. In one statement, so that the numbers belong together.
SELECT b.accepted, j.live, j.completed, j.failed, j.cancelled, b.pruned, p.completed, p.failed, p.cancelled,
  j.own_live, j.own_completed, j.own_failed, j.own_cancelled, p.own_completed, p.own_failed, p.own_cancelled
FROM (
  SELECT coalesce(sum(accepted), 0)::bigint AS accepted, coalesce(sum(pruned), 0)::bigint AS pruned FROM {schema}.ledger
) b CROSS JOIN (
  SELECT coalesce(sum(jobs) FILTER (WHERE ended IS NULL), 0)::bigint AS live,
    coalesce(sum(jobs) FILTER (WHERE ended = {completed}), 0)::bigint AS completed,
    coalesce(sum(jobs) FILTER (WHERE ended = {failed}), 0)::bigint AS failed,
    coalesce(sum(jobs) FILTER (WHERE ended = {cancelled}), 0)::bigint AS cancelled,
    coalesce(sum(jobs) FILTER (WHERE ended IS NULL AND {own_task}), 0)::bigint AS own_live,
    coalesce(sum(jobs) FILTER (WHERE ended = {completed} AND {own_task}), 0)::bigint AS own_completed,
    coalesce(sum(jobs) FILTER (WHERE ended = {failed} AND {own_task}), 0)::bigint AS own_failed,
    coalesce(sum(jobs) FILTER (WHERE ended = {cancelled} AND {own_task}), 0)::bigint AS own_cancelled
  FROM (
    SELECT subqueue, CASE WHEN stage >= 4 THEN status END AS ended, count(*) AS jobs FROM {schema}.jobs GROUP BY 1, 2
  ) c JOIN {schema}.subqueues l ON l.id = c.subqueue JOIN {schema}.profiles p ON p.id = l.profile
) j CROSS JOIN (
  SELECT coalesce(sum(completed), 0)::bigint AS completed, coalesce(sum(failed), 0)::bigint AS failed,
    coalesce(sum(cancelled), 0)::bigint AS cancelled, coalesce(sum(own_completed), 0)::bigint AS own_completed,
    coalesce(sum(own_failed), 0)::bigint AS own_failed, coalesce(sum(own_cancelled), 0)::bigint AS own_cancelled
  FROM {schema}.pruned
) p
