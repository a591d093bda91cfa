-- Put queued jobs into other subqueues, each if it is still there and not locked. {"collected": the count at which the
-- subqueues are good, "lock": the lock against collecting, "rows": [[seq, rev, subqueue], …]}. Returns how many; null
-- if the subqueues are not good, and nothing was done.
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d),
gate AS MATERIALIZED (
  SELECT CASE WHEN pg_advisory_xact_lock_shared((d ->> 'lock')::bigint) IS NOT NULL
    THEN (SELECT last_value FROM {schema}.collections) END = (d ->> 'collected')::bigint AS open
  FROM doc
),
moving AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS seq, (r ->> 1)::integer AS rev, (r ->> 2)::integer AS subqueue
  FROM doc CROSS JOIN json_array_elements(d -> 'rows') AS e (r) WHERE (SELECT open FROM gate)
),
held AS MATERIALIZED (
  SELECT j.seq FROM {schema}.jobs j
  WHERE j.seq = ANY (ARRAY(SELECT seq FROM moving)) AND j.stage IN (2, -1) ORDER BY j.seq FOR UPDATE SKIP LOCKED
),
moved AS (
  UPDATE {schema}.jobs j SET subqueue = m.subqueue FROM moving m JOIN held h ON h.seq = m.seq
  WHERE j.seq = m.seq AND j.rev = m.rev AND j.subqueue <> m.subqueue
  RETURNING j.subqueue, j.turn_key, j.stage, j.rank, j.arrived_at, j.seq
),
-- A head may be in front of the jobs of its key: so who left need not be known, who came must be.
{in_turn.sql arrived=moved}
SELECT CASE WHEN open THEN (SELECT count(*) FROM moved) END::text FROM gate
