-- The jobs that notes concern, behind their cursors; those of a cancel while core.lifecycle.family.still_cancelled.
-- $1 ids, $2 kinds, $3 order numbers and $4 cursors of the notes; $5 how many
SELECT n.id, c.seq
FROM unnest($1::text::bigint[], $2::text[], $3::text::bigint[], $4::text::bigint[])
    WITH ORDINALITY AS n (id, kind, seq, cursor, place)
  CROSS JOIN LATERAL (
    SELECT n.seq AS seq WHERE n.kind = 'w'
    UNION ALL
    (SELECT w.child FROM {schema}.waits w WHERE n.kind = 'e' AND w.parent = n.seq AND w.child > n.cursor
     ORDER BY w.child LIMIT $5)
    UNION ALL
    (SELECT l.seq FROM {schema}.labels l
     WHERE n.kind = 'c' AND l.seq > n.cursor AND l.label = (
         SELECT 'p' || coalesce(o.batch, j.id) FROM {schema}.notes o LEFT JOIN {schema}.jobs j ON j.seq = o.seq
         WHERE o.id = n.id AND (j.seq IS NULL OR j.stage >= 4 OR j.cancel_requested_at IS NOT NULL))
     ORDER BY l.seq LIMIT $5)
    UNION ALL
    (SELECT l.seq FROM {schema}.labels l
     WHERE n.kind = 's' AND l.label = (SELECT 'b' || o.batch FROM {schema}.notes o WHERE o.id = n.id) AND l.seq > n.cursor
     ORDER BY l.seq LIMIT $5)
  ) c
ORDER BY n.place, c.seq LIMIT $5
