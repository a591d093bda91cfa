-- Messages to webhooks that are missing, by their numbers; as core.webhooks.messages.lost has it.
-- $1 the moment before which a message may have been made that is pruned by now; $2 the same as a text
WITH told AS MATERIALIZED (
  SELECT {job_id} AS about, j.created_at AS made, t.value ->> 0 AS target, t.value ->> 1 AS messages, t.value ->> 3 AS at
  FROM jobs j CROSS JOIN json_each(j.state, '$[{place_of_told}]') t WHERE t.type = 'array'
),
sent AS MATERIALIZED (
  SELECT o.about, o.target,
    -- A value that is no number belongs to no message.
    CASE coalesce(json_type(b.spec, '$.metadata.number'), 'null')
      WHEN 'null' THEN NULL WHEN 'integer' THEN b.spec -> 'metadata' ->> 'number' ELSE 0 END AS number,
    max(CASE WHEN b.spec ->> 'rerun_of' IS NULL THEN m.created_at ELSE 0 END) AS made
  FROM told o CROSS JOIN labels a ON a.label = 't' || o.about
    CROSS JOIN labels c ON c.seq = a.seq AND c.label = 't' || o.target
    CROSS JOIN jobs m ON m.seq = a.seq CROSS JOIN bodies b ON b.seq = m.seq
  WHERE b.spec ->> 'task' = '{delivery}'
  GROUP BY 1, 2, 3
),
{missing_messages.sql}
