-- Jobs that the sweeper must check: [[worker is alive, unnamed beats, its last beat, whether a suspect and another ran on
-- it when it was buried, whether others died with it, record], …]; and the next deadline.
SELECT '[' || coalesce(group_concat('[' || alive || ',' || unnamed || ',' || coalesce(beat_at, 'null') || ',' || beside || ',' || mass || ',' || r.doc || ']', ','), '') || ']', (
  SELECT min(act_by) FROM (
    SELECT min(act_by) AS act_by FROM jobs WHERE stage = 3 AND act_by > ?1
    UNION ALL
    SELECT min(act_by) FROM jobs WHERE act_by > ?1 AND stage < 3
  )
) FROM (
  SELECT j.seq AS seq, coalesce(w.alive, 0) AS alive, j.unnamed AS unnamed, w.beat_at AS beat_at,
    coalesce(w.beside_suspect, 0) AS beside, coalesce(w.mass_death, 0) AS mass
  FROM jobs j LEFT JOIN workers w ON w.id = j.worker
  WHERE j.stage = 3
    AND (j.act_by <= ?1 OR NOT coalesce(w.alive, 0) OR j.unnamed >= 2)
  UNION ALL
  SELECT seq, 1, 0, NULL, 0, 0 FROM jobs
  WHERE act_by <= ?1 AND stage < 3
  LIMIT ?2 + 0
) o CROSS JOIN record r ON r.seq = o.seq
