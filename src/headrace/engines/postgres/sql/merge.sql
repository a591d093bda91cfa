-- Give a job the payload of another submit, and find it by the id of that one as well; part of the transaction that
-- applies the change. [seq, id, payload, label]
WITH doc AS MATERIALIZED (SELECT $1::text::json AS d),
kept AS (
  UPDATE {schema}.bodies SET payload = d ->> 2 FROM doc WHERE id = (d ->> 1)::uuid
),
labelled AS (
  INSERT INTO {schema}.labels (seq, label) SELECT (d ->> 0)::bigint, d ->> 3 FROM doc ON CONFLICT DO NOTHING
)
SELECT 'merged'
