-- Changes as a document: [[…], …], see apply.sql for what they hold.
WITH c AS (
  SELECT (r ->> 0)::integer AS place, (r ->> 1)::bigint AS seq, (r ->> 2)::integer AS rev_before,
    (r ->> 3)::integer AS rev, r ->> 4 AS status, (r ->> 5)::smallint AS stage, (r ->> 6)::bigint AS updated_at,
    (r ->> 7)::integer AS epoch, (r ->> 8)::integer AS unstarted_losses, (r ->> 9)::uuid AS worker,
    (r ->> 10)::bigint AS claim, (r ->> 11)::bigint AS act_by, (r ->> 12)::bigint AS assigned_at,
    (r ->> 13)::bigint AS accepted_at, (r ->> 14)::bigint AS finished_at, (r ->> 15)::bigint AS available_at,
    (r ->> 16)::bigint AS arrived_at, (r ->> 17)::bigint AS cancel_requested_at, r ->> 18 AS progress,
    r ->> 19 AS state, r ->> 20 AS key, (r ->> 21)::bigint AS change, r ->> 22 AS result, r ->> 23 AS error,
    (r ->> 24)::integer AS number, r ->> 25 AS attempt, r ->> 26 AS event,
    r ->> 27 AS notes, r ->> 28 AS tally
  FROM json_array_elements($1::text::json) AS e (r)
),
