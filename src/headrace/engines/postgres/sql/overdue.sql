-- Jobs that the sweeper must check: the next deadline, whether the worker is alive, unnamed beats, its last beat, whether
-- a suspect and another ran on it when it was buried, whether others died with it, record. At least one row, for the next
-- deadline. $1 the moment, $2 how many
SELECT n.next_at, o.alive, o.unnamed, o.beat_at, o.beside, o.mass, {record}
FROM (
  SELECT least(
    (SELECT min(act_by) FROM {schema}.jobs WHERE stage = 3 AND act_by > $1),
    (SELECT min(act_by) FROM {schema}.jobs WHERE act_by > $1 AND act_by IS NOT NULL AND stage < 3)
  ) AS next_at
) n LEFT JOIN (
  (
    SELECT j.seq, coalesce(w.alive, false) AS alive, j.unnamed, w.beat_at, coalesce(w.beside_suspect, false) AS beside,
      coalesce(w.mass_death, false) AS mass
    FROM {schema}.jobs j LEFT JOIN {schema}.workers w ON w.id = j.worker
    WHERE j.stage = 3 AND (j.act_by <= $1 OR NOT coalesce(w.alive, false) OR j.unnamed >= 2)
    UNION ALL
    SELECT seq, true, 0, NULL, false, false FROM {schema}.jobs WHERE act_by <= $1 AND act_by IS NOT NULL AND stage < 3
    LIMIT $2
  ) o JOIN {schema}.jobs j ON j.seq = o.seq JOIN {schema}.bodies b ON b.id = j.id
) ON true
