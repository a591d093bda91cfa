-- Put jobs into other lines, or elsewhere in their own, before a change of theirs is applied, each if it is still at its
-- rev; part of a transaction. {"collected": the count at which the lines are good, "lock": the lock against
-- collecting, "rows": [[seq, rev, line, rank], …]}. Answers whether the lines are good; if they are not, nothing was done.
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d),
gate AS MATERIALIZED (
  -- The lock first: if a line was collected before it was taken, the count has grown.
  SELECT CASE WHEN pg_advisory_xact_lock_shared((d ->> 'lock')::bigint) IS NOT NULL
    THEN (SELECT last_value FROM {schema}.collections) END = (d ->> 'collected')::bigint AS open
  FROM doc
),
moving AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS seq, (r ->> 1)::integer AS rev, (r ->> 2)::integer AS line,
    (r ->> 3)::smallint AS rank
  FROM doc CROSS JOIN json_array_elements(d -> 'rows') AS e (r) WHERE (SELECT open FROM gate)
),
moved AS (UPDATE {schema}.jobs j SET line = m.line, rank = m.rank FROM moving m WHERE j.seq = m.seq AND j.rev = m.rev)
SELECT open::text FROM gate
