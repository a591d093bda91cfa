-- The ledger: accepted, live, ended as completed, failed and cancelled, pruned, and that again by kind; in one statement,
-- so that the numbers belong together.
SELECT b.accepted, j.live, j.completed, j.failed, j.cancelled, b.pruned, p.completed, p.failed, p.cancelled
FROM (
  SELECT coalesce(sum(accepted), 0)::bigint AS accepted, coalesce(sum(pruned), 0)::bigint AS pruned FROM {schema}.ledger
) b CROSS JOIN (
  SELECT count(*) FILTER (WHERE stage < 4) AS live, count(*) FILTER (WHERE stage >= 4 AND status = {completed}) AS completed,
    count(*) FILTER (WHERE stage >= 4 AND status = {failed}) AS failed,
    count(*) FILTER (WHERE stage >= 4 AND status = {cancelled}) AS cancelled
  FROM {schema}.jobs
) j CROSS JOIN (
  SELECT coalesce(sum(completed), 0)::bigint AS completed, coalesce(sum(failed), 0)::bigint AS failed,
    coalesce(sum(cancelled), 0)::bigint AS cancelled
  FROM {schema}.pruned
) p
