-- Messages to webhooks that are missing, by their numbers; as in core.webhooks.messages.lost. $1 the moment before
-- which a message may have been made that is pruned by now; $2 the same as a text
WITH told AS MATERIALIZED (
  SELECT {job_id} AS about, o.created_at AS made, t.value ->> 0 AS target, (t.value ->> 1)::integer AS messages,
    t.value ->> 3 AS at
  FROM {schema}.jobs j JOIN {schema}.bodies o ON o.id = j.id CROSS JOIN LATERAL json_array_elements(
    CASE WHEN json_typeof(j.state::json -> {place_of_told}) = 'array' THEN j.state::json -> {place_of_told} ELSE '[]' END
  ) AS t (value)
  WHERE j.state IS NOT NULL
),
sent AS MATERIALIZED (
  SELECT about, target, number, max(made) AS made FROM (
    SELECT o.about, o.target,
      -- A value that is no number belongs to no message.
      CASE WHEN b.spec::json ->> 'task' <> '{delivery}' OR b.spec::json -> 'metadata' ->> 'number' IS NULL THEN NULL
        WHEN json_typeof(b.spec::json -> 'metadata' -> 'number') = 'number'
          AND b.spec::json -> 'metadata' ->> 'number' ~ '^[0-9]{1,9}$'
        THEN (b.spec::json -> 'metadata' ->> 'number')::integer ELSE 0 END AS number,
      CASE WHEN b.spec::json ->> 'rerun_of' IS NULL THEN b.created_at ELSE 0 END AS made,
      b.spec::json ->> 'task' AS task
    FROM told o JOIN {schema}.labels a ON a.label = 't' || o.about
      JOIN {schema}.labels c ON c.seq = a.seq AND c.label = 't' || o.target
      JOIN {schema}.jobs m ON m.seq = a.seq JOIN {schema}.bodies b ON b.id = m.id
  ) found WHERE task = '{delivery}'
  GROUP BY 1, 2, 3
),
{missing_messages.sql}
