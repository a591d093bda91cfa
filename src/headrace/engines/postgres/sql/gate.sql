-- Whether the subqueues and stakes in the document "doc" are good.
held AS MATERIALIZED (
  SELECT s.subqueue FROM doc CROSS JOIN json_array_elements(d -> 'stakes') AS w (r)
    JOIN {schema}.stakes s ON s.customer = r ->> 0 AND s.subqueue = (r ->> 1)::integer
  FOR KEY SHARE OF s
),
gate AS MATERIALIZED (
  -- The lock first: if a subqueue was collected before it was taken, the count has grown. A transaction that sees the
  -- store as of its begin may not see its stakes, which were committed since.
  SELECT CASE WHEN pg_advisory_xact_lock_shared((d ->> 'lock')::bigint) IS NOT NULL
    THEN (SELECT last_value FROM {schema}.collections) = (d ->> 'collected')::bigint
      AND ((SELECT count(*) FROM held) = json_array_length(d -> 'stakes')
        OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable')) END AS open
  FROM doc
),
