-- Ended jobs that are old enough and that no live job waits or waited for. Jobs that others waited for are only named,
-- not removed: whether a new job waits for one is known once it is locked. core.lifecycle.retention.is_past. $1
-- statuses, $2 moments as a text, $3 maximum, $5 moments up to which they were checked before, as a text, $6 now
WITH general AS MATERIALIZED (
  SELECT o.seq, o.id, o.tied
  FROM (
    SELECT u.*, min(u.before) OVER () AS earliest
    FROM unnest($1::text[], $2::text::bigint[], $5::text::bigint[]) AS u (status, before, since)
  ) t CROSS JOIN LATERAL (
    SELECT j.seq, j.id, j.tied FROM {schema}.jobs j
    WHERE j.stage >= 4 AND j.status = t.status AND j.finished_at <= t.before AND j.finished_at > t.since
      AND (j.keep IS NULL OR (j.keep::json ->> j.status) IS NULL)
      -- A number, not EXISTS: for EXISTS the planner might choose to read all jobs first.
      AND (j.tied = 0 OR (
        SELECT 1 FROM {schema}.waits w JOIN {schema}.jobs k ON k.seq = w.child
        WHERE w.parent = j.seq AND k.stage < 4 LIMIT 1) IS NULL)
      -- A child that its parent may look for: core.lifecycle.family.may_be_looked_for.
      AND (j.finished_at <= t.earliest OR (
        SELECT 1 FROM {schema}.labels l
          JOIN {schema}.bodies b ON b.id = CASE WHEN left(l.label, 1) = 'p' THEN substr(l.label, 2)::uuid END
          JOIN {schema}.jobs p ON p.seq = b.seq
        WHERE l.seq = j.seq AND p.stage <> 4 LIMIT 1) IS NULL)
      -- A job that still holds its dedup key for its period: core.lifecycle.deduplication.has_lapsed.
      AND (j.held_key IS NULL OR t.before >= (
        SELECT b.created_at + round(1000000 * coalesce((b.spec::json ->> 'dedup_for')::double precision, 0))
        FROM {schema}.bodies b WHERE b.id = j.id LIMIT 1))
    ORDER BY j.finished_at LIMIT $3 FOR UPDATE SKIP LOCKED
  ) o
  LIMIT $3
),
-- The same for those with a retention of their own.
own AS MATERIALIZED (
  SELECT j.seq, j.id, j.tied FROM {schema}.jobs j
  WHERE j.stage >= 4 AND j.keep IS NOT NULL AND j.finished_at + (j.keep::json ->> j.status)::bigint <= $6
    AND (j.tied = 0 OR (
      SELECT 1 FROM {schema}.waits w JOIN {schema}.jobs k ON k.seq = w.child
      WHERE w.parent = j.seq AND k.stage < 4 LIMIT 1) IS NULL)
    AND (j.finished_at <= (SELECT min(before) FROM unnest($2::text::bigint[]) AS t (before)) OR (
      SELECT 1 FROM {schema}.labels l
        JOIN {schema}.bodies b ON b.id = CASE WHEN left(l.label, 1) = 'p' THEN substr(l.label, 2)::uuid END
        JOIN {schema}.jobs p ON p.seq = b.seq
      WHERE l.seq = j.seq AND p.stage <> 4 LIMIT 1) IS NULL)
    AND (j.held_key IS NULL OR $6 - (j.keep::json ->> j.status)::bigint >= (
      SELECT b.created_at + round(1000000 * coalesce((b.spec::json ->> 'dedup_for')::double precision, 0))
      FROM {schema}.bodies b WHERE b.id = j.id LIMIT 1))
  ORDER BY j.finished_at + (j.keep::json ->> j.status)::bigint LIMIT $3 FOR UPDATE SKIP LOCKED
),
found AS MATERIALIZED (SELECT * FROM (SELECT * FROM general UNION ALL SELECT * FROM own) f LIMIT $3),
old AS MATERIALIZED (SELECT seq, id FROM found WHERE tied = 0),
kept AS (SELECT seq FROM found WHERE tied <> 0),
batches AS (
  DELETE FROM {schema}.batches
  WHERE settled AND coalesce(ended_at, 0) <= (SELECT min(before) FROM unnest($2::text::bigint[]) AS t (before))
),
