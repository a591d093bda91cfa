-- Store a batch of new jobs in one step; fails as a whole when an id is here already.
-- $1 to $13: id, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, payload, spec, labels
-- $14 the count of collections at which the lines are good, $15 the lock against collecting, $16 and $17 channels and
-- messages of hints, $18 the specs. Answers the order numbers; none: the lines are no good.
WITH gate AS MATERIALIZED (
  -- The lock first: had any line been collected before it was ours, the count would have grown.
  SELECT CASE WHEN pg_advisory_xact_lock_shared($15) IS NOT NULL
    THEN (SELECT last_value FROM {schema}.collections) END = $14 AS open
),
arriving AS MATERIALIZED (
  SELECT nextval('{schema}.seqs') AS seq, t.*
  FROM (
    SELECT * FROM unnest(
      $1::text::uuid[], $2::text::integer[], $3::text::text[], $4::text::smallint[], $5::text::smallint[],
      $6::text::bigint[], $7::text::bigint[], $8::text::bigint[], $9::text::bigint[], $10::text[], $11::text[],
      $12::text::integer[], $13::text[])
    WITH ORDINALITY AS u (
      id, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, payload, spec, labels,
      place)
    WHERE (SELECT open FROM gate)
    ORDER BY place
  ) t
),
stored AS (
  INSERT INTO {schema}.jobs (
    seq, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, rev, epoch, unstarted_losses,
    unnamed)
  SELECT seq, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, 1, 0, 0, 0 FROM arriving
),
kept AS (
  INSERT INTO {schema}.bodies (seq, id, payload, spec) SELECT seq, id, payload, ($18::text[])[spec] FROM arriving
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
  SELECT pg_notify(channel, message) FROM unnest($16::text[], $17::text[]) AS t (channel, message)
)
SELECT array_agg(seq ORDER BY place), (SELECT count(*) FROM told) FROM arriving
