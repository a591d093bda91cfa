-- Notes in their order, each with the jobs that it concerns behind its cursor: id, kind, seq (null if none). ?1 how
-- many A cancel concerns jobs while core.lifecycle.family.still_cancelled.
SELECT n.id, n.kind, coalesce(w.child, l.seq, iif(n.kind = 'waits', n.seq, NULL))
FROM notes n
  LEFT JOIN waits w ON n.kind = 'ended' AND w.parent = n.seq AND w.child > n.cursor
  LEFT JOIN labels l ON l.label = n.label AND l.seq > n.cursor AND NOT EXISTS (
    SELECT 1 FROM jobs j WHERE j.seq = n.seq AND j.stage < 4 AND j.cancel_requested_at IS NULL)
ORDER BY n.id, w.child, l.seq
LIMIT ?1 + 0
