-- Store a batch of new jobs in one statement; fails as a whole if an id is stored already. $1 ids and $2 payloads of
-- all, as texts of arrays; $3 the count of collections for which the subqueues are valid, $4 the lock against
-- collecting, $5 and $6 channels and messages of hints; $7 and $8 customers and the subqueues in which they need a
-- stake; from $9 on columns.RUN, for each run of jobs that are otherwise alike, as texts of arrays. Returns the order
-- number of the first job, from which the others count up; null if the subqueues are not valid, or a stake was given
-- up.
WITH held AS MATERIALIZED (
  -- Locked until the end: a recount does not remove stakes that are in use.
  SELECT s.subqueue FROM unnest($7::text[], $8::integer[]) AS w (customer, subqueue)
    JOIN {schema}.stakes s ON s.customer = w.customer AND s.subqueue = w.subqueue
  FOR KEY SHARE OF s
),
gate AS MATERIALIZED (
  -- The lock first: if a subqueue was collected before it was taken, the count has grown.
  SELECT CASE WHEN pg_advisory_xact_lock_shared($4) IS NOT NULL
    THEN (SELECT last_value FROM {schema}.collections) = $3 AND (SELECT count(*) FROM held) = cardinality($7) END AS open
),
first AS MATERIALIZED (SELECT nextval('{schema}.seqs') AS seq WHERE (SELECT open FROM gate)),
all_of_them AS MATERIALIZED (SELECT $1::text::uuid[] AS ids, $2::text::text[] AS payloads),
arriving AS MATERIALIZED (
  SELECT f.seq + r.first + x.number - 2 AS seq, x.id, x.payload, r.*
  FROM first f CROSS JOIN all_of_them a
    CROSS JOIN unnest({run_arrays}) AS r ({run_names})
    CROSS JOIN LATERAL unnest(a.ids[r.first:r.last], a.payloads[r.first:r.last]) WITH ORDINALITY
    AS x (id, payload, number)
),
stored AS (
  INSERT INTO {schema}.jobs (seq, id, {run_columns}, rev, epoch, unstarted_losses, unnamed)
  SELECT seq, id, {run_columns}, 1, 0, 0, 0
  FROM arriving
),
{in_turn.sql arrived=arriving},
kept AS (
  INSERT INTO {schema}.bodies (seq, id, payload, spec, created_at)
  SELECT seq, id, payload, spec, created_at FROM arriving
),
runs AS MATERIALIZED (
  SELECT f.seq, r.subqueue, r.created_at >> 29 AS bucket FROM first f CROSS JOIN unnest({run_arrays}) AS r ({run_names})
),
{list_blocks.sql}
labelled AS (
  INSERT INTO {schema}.labels (seq, label)
  SELECT a.seq, l.label FROM arriving a CROSS JOIN json_array_elements_text(a.labels::json) AS l (label)
  WHERE a.labels IS NOT NULL
),
booked AS (
  INSERT INTO {schema}.ledger (accepted, pruned) SELECT count(*), 0 FROM arriving HAVING count(*) > 0
),
told AS MATERIALIZED (
  SELECT pg_notify(channel, message) FROM unnest($5::text[], $6::text[]) AS t (channel, message)
)
SELECT (SELECT seq FROM first), (SELECT count(*) FROM told)
