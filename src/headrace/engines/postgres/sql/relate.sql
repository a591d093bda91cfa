-- Store the relations of jobs that were just stored: {"edges": [[order number, [ids it waits for]], …], "noted": [order
-- numbers of those that wait], "batches": [[sql.batches.COLUMNS], …], "counts": [[batch, total, completed, failed,
-- cancelled, moment], …]}
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d),
made AS (
  INSERT INTO {schema}.batches ({batch})
  SELECT {batch_values}
  FROM doc CROSS JOIN json_array_elements(d -> 'batches') AS e (r)
  ON CONFLICT (id) DO NOTHING
),
edges AS MATERIALIZED (
  SELECT DISTINCT (r ->> 0)::bigint AS child, b.seq AS parent
  FROM doc CROSS JOIN json_array_elements(d -> 'edges') AS e (r)
    CROSS JOIN json_array_elements_text(r -> 1) AS a (id)
    -- One by one: the planner assumes thousands of ids, and might choose to read the whole table.
    CROSS JOIN LATERAL (SELECT seq FROM {schema}.bodies WHERE bodies.id = a.id::uuid OFFSET 0) b
),
tied AS (
  UPDATE {schema}.jobs SET tied = 1 WHERE seq = ANY (ARRAY(SELECT parent FROM edges ORDER BY parent)) AND tied = 0
),
waiting AS (
  INSERT INTO {schema}.waits (child, parent) SELECT child, parent FROM edges
),
noted AS (
  INSERT INTO {schema}.notes (kind, seq)
  SELECT 'w', value::bigint FROM doc CROSS JOIN json_array_elements_text(d -> 'noted')
),
counted AS (
  INSERT INTO {schema}.batch_counts (batch, total, completed, failed, cancelled, at)
  SELECT (r ->> 0)::uuid, (r ->> 1)::integer, (r ->> 2)::integer, (r ->> 3)::integer, (r ->> 4)::integer,
    (r ->> 5)::bigint
  FROM doc CROSS JOIN json_array_elements(d -> 'counts') AS e (r)
)
SELECT count(*)::text FROM edges
