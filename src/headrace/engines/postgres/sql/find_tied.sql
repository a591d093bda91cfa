-- Of locked, ended jobs that others waited for, those that no live job waits or waited for. $1 order numbers
WITH old AS MATERIALIZED (
  SELECT j.seq, j.id FROM {schema}.jobs j
  WHERE j.seq = ANY ($1::text::bigint[]) AND NOT EXISTS (
    SELECT 1 FROM {schema}.waits w JOIN {schema}.jobs k ON k.seq = w.child WHERE w.parent = j.seq AND k.stage < 4)
),
kept AS (SELECT 0::bigint AS seq WHERE false),
