-- Store reports of progress, each if the job is still at its rev. $1 to $5: place, seq, rev, progress, updated_at
WITH reported AS (
  UPDATE {schema}.jobs j SET progress = c.progress, updated_at = c.updated_at
  FROM unnest($1::text::integer[], $2::text::bigint[], $3::text::integer[], $4::text::text[], $5::text::bigint[])
    AS c (place, seq, rev, progress, updated_at)
  WHERE j.seq = c.seq AND j.rev = c.rev
  RETURNING c.place
)
SELECT coalesce(json_agg(place), '[]')::text FROM reported
