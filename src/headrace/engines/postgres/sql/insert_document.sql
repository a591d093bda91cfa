-- Store new jobs after a lookup of their ids and keys, in one step, as part of a transaction. {"collected": the count
-- at which the subqueues are good, "lock": the lock against collecting, "rows": [[columns.NEW], …], "stakes":
-- [[customer, subqueue], …], "hints": [[channel, message], …]} Returns {"open": whether the subqueues and stakes are
-- good, "stored": [[index, order number], …], "bare": [ids]}. Fewer stored than rows: another transaction stored an id
-- or a key in between; for a dedup key the bare bodies must be removed. In a transaction that cannot see such a row,
-- all are a failure to serialize, not one of uniqueness.
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d),
{gate.sql}
first AS MATERIALIZED (SELECT nextval('{schema}.seqs') AS seq WHERE (SELECT open FROM gate)),
arriving AS MATERIALIZED (
  SELECT f.seq + e.place - 1 AS seq, e.place, e.r
  FROM first f CROSS JOIN doc CROSS JOIN json_array_elements(d -> 'rows') WITH ORDINALITY AS e (r, place)
),
kept AS (
  INSERT INTO {schema}.bodies (seq, id, payload, spec, request, created_at)
  SELECT seq, {new_id}, {new_payload}, {new_spec}, {new_request}, {new_created_at} FROM arriving ORDER BY {new_id}
  ON CONFLICT DO NOTHING
  RETURNING seq, id
),
stored AS (
  INSERT INTO {schema}.jobs (seq, {new_columns}, rev, epoch, unstarted_losses, unnamed)
  SELECT a.seq, {new_values}, 1, 0, 0, 0
  FROM kept JOIN arriving a USING (seq)
  ON CONFLICT (held_key) WHERE held_key IS NOT NULL DO NOTHING
  RETURNING seq, subqueue, stage, turn_key, rank, arrived_at
),
runs AS MATERIALIZED (
  SELECT a.seq, {new_subqueue} AS subqueue, {new_created_at} >> 29 AS bucket FROM stored JOIN arriving a USING (seq)
),
{list_blocks.sql}
{in_turn.sql arrived=stored},
labelled AS (
  INSERT INTO {schema}.labels (seq, label)
  SELECT a.seq, l.label
  FROM stored JOIN arriving a USING (seq) CROSS JOIN json_array_elements_text(({new_labels})::json) AS l (label)
  WHERE {new_labels} IS NOT NULL
),
booked AS (
  INSERT INTO {schema}.ledger (accepted, pruned) SELECT count(*), 0 FROM stored HAVING count(*) > 0
),
told AS MATERIALIZED (
  SELECT pg_notify(h ->> 0, h ->> 1) FROM doc CROSS JOIN json_array_elements(d -> 'hints') h
  WHERE (SELECT open FROM gate)
)
SELECT json_build_object(
  'open', (SELECT open FROM gate),
  'stored', coalesce(
    (SELECT json_agg(json_build_array(a.place, seq) ORDER BY a.place) FROM stored JOIN arriving a USING (seq)),
    '[]'::json),
  'bare', coalesce((SELECT json_agg(id) FROM kept WHERE seq NOT IN (SELECT seq FROM stored)), '[]'::json),
  'told', (SELECT count(*) FROM told))::text
