-- Store a batch of new jobs in one step; fails as a whole when an id is here already. $1 ids and $2 payloads of all; $3
-- to $16 of each run of jobs that are otherwise alike: its first and its last, line, status, stage, rank, arrived_at,
-- available_at, updated_at, act_by, state, spec, labels, turn_key; $17 the count of collections at which the lines are
-- good, $18 the lock against collecting, $19 and $20 channels and messages of hints. All but $17 to $20 are texts of
-- arrays.
-- Answers the first order number, from which they are counted; none: the lines are no good.
WITH gate AS MATERIALIZED (
  -- The lock first: had any line been collected before it was ours, the count would have grown.
  SELECT CASE WHEN pg_advisory_xact_lock_shared($18) IS NOT NULL
    THEN (SELECT last_value FROM {schema}.collections) END = $17 AS open
),
first AS MATERIALIZED (SELECT nextval('{schema}.seqs') AS seq WHERE (SELECT open FROM gate)),
all_of_them AS MATERIALIZED (SELECT $1::text::uuid[] AS ids, $2::text::text[] AS payloads),
arriving AS MATERIALIZED (
  SELECT f.seq + r.first + x.number - 2 AS seq, x.id, x.payload, r.*
  FROM first f CROSS JOIN all_of_them a
    CROSS JOIN unnest(
      $3::text::integer[], $4::text::integer[], $5::text::integer[], $6::text::text[], $7::text::smallint[],
      $8::text::smallint[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[],
      $13::text::text[], $14::text::text[], $15::text::text[], $16::text::text[])
    AS r (
      first, last, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, spec, labels, turn_key)
    CROSS JOIN LATERAL unnest(a.ids[r.first:r.last], a.payloads[r.first:r.last]) WITH ORDINALITY
    AS x (id, payload, number)
),
stored AS (
  INSERT INTO {schema}.jobs (
    seq, id, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, turn_key, rev, epoch,
    unstarted_losses, unnamed)
  SELECT seq, id, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, turn_key, 1, 0, 0, 0
  FROM arriving
),
in_turn AS (
  INSERT INTO {schema}.arrivals (line, key, rank, arrived_at, seq)
  SELECT line, turn_key, rank, min(arrived_at), min(seq) FROM arriving WHERE stage = -1 GROUP BY 1, 2, 3
),
kept AS (
  INSERT INTO {schema}.bodies (seq, id, payload, spec) SELECT seq, id, payload, spec FROM arriving
),
labelled AS (
  INSERT INTO {schema}.labels (seq, label)
  SELECT a.seq, l.label FROM arriving a CROSS JOIN json_array_elements_text(a.labels::json) AS l (label)
  WHERE a.labels IS NOT NULL
),
booked AS (
  INSERT INTO {schema}.ledger (accepted, pruned) SELECT count(*), 0 FROM arriving HAVING count(*) > 0
),
told AS MATERIALIZED (
  SELECT pg_notify(channel, message) FROM unnest($19::text[], $20::text[]) AS t (channel, message)
)
SELECT (SELECT seq FROM first), (SELECT count(*) FROM told)
