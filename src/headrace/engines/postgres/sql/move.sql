-- Put jobs into other subqueues, or elsewhere in their own, before a change of theirs is applied, each if it is still
-- at its rev; part of a transaction. {"collected": the count at which the subqueues are good, "lock": the lock against
-- collecting, "rows": [[seq, rev, subqueue, rank], …], "stakes": [[customer, subqueue], …]}. Returns whether the
-- subqueues and stakes are good; if they are not, nothing was done.
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d),
{gate.sql}
moving AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS seq, (r ->> 1)::integer AS rev, (r ->> 2)::integer AS subqueue,
    (r ->> 3)::smallint AS rank
  FROM doc CROSS JOIN json_array_elements(d -> 'rows') AS e (r) WHERE (SELECT open FROM gate)
),
moved AS (
  UPDATE {schema}.jobs j SET subqueue = m.subqueue, rank = m.rank FROM moving m WHERE j.seq = m.seq AND j.rev = m.rev
)
SELECT open::text FROM gate
