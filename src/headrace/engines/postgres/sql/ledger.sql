-- The ledger: accepted, live, ended, pruned; in one statement, so that the numbers belong together.
SELECT coalesce(sum(accepted), 0)::bigint,
  (SELECT count(*) FROM {schema}.jobs WHERE stage < 4),
  (SELECT count(*) FROM {schema}.jobs WHERE stage >= 4),
  coalesce(sum(pruned), 0)::bigint
FROM {schema}.ledger
