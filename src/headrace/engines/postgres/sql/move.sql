-- Put jobs into other subqueues, or elsewhere in their own, before a change of theirs is applied, each if it is still
-- at its rev; part of a transaction. {"collected": the count at which the subqueues are good, "lock": the lock against
-- collecting, "rows": [[seq, rev, subqueue, rank], …], "stakes": [[customer, subqueue], …]}. Returns whether the
-- subqueues and stakes are good; if they are not, nothing was done.
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d),
held AS MATERIALIZED (
  SELECT s.subqueue FROM doc CROSS JOIN json_array_elements(d -> 'stakes') AS w (r)
    JOIN {schema}.stakes s ON s.customer = r ->> 0 AND s.subqueue = (r ->> 1)::integer
  FOR KEY SHARE OF s
),
gate AS MATERIALIZED (
  -- The lock first: if a subqueue was collected before it was taken, the count has grown.
  SELECT CASE WHEN pg_advisory_xact_lock_shared((d ->> 'lock')::bigint) IS NOT NULL
    THEN (SELECT last_value FROM {schema}.collections) = (d ->> 'collected')::bigint
      AND ((SELECT count(*) FROM held) = json_array_length(d -> 'stakes')
        OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable')) END AS open
  FROM doc
),
moving AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS seq, (r ->> 1)::integer AS rev, (r ->> 2)::integer AS subqueue,
    (r ->> 3)::smallint AS rank
  FROM doc CROSS JOIN json_array_elements(d -> 'rows') AS e (r) WHERE (SELECT open FROM gate)
),
moved AS (
  UPDATE {schema}.jobs j SET subqueue = m.subqueue, rank = m.rank FROM moving m WHERE j.seq = m.seq AND j.rev = m.rev
)
SELECT open::text FROM gate
