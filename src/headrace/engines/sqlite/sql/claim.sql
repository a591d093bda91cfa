-- Promote what is due and give a worker the first jobs in order that it may take, in one statement.
CREATE TEMP TABLE served (ask INTEGER, subqueue INTEGER, PRIMARY KEY (ask, subqueue)) WITHOUT ROWID;
CREATE TEMP TABLE tops (subqueue INTEGER PRIMARY KEY, place INTEGER);
CREATE TEMP TABLE picked (pos INTEGER PRIMARY KEY, seq INTEGER, fragile INTEGER, expired INTEGER);
CREATE TEMP VIEW claim AS
SELECT NULL AS worker, NULL AS request, NULL AS ask, NULL AS subqueues_rev, NULL AS n, NULL AS free,
  NULL AS fragile_after, NULL AS status, NULL AS now, NULL AS accepted_at, NULL AS act_by;

CREATE TEMP TRIGGER claiming INSTEAD OF INSERT ON claim
WHEN EXISTS (SELECT 1 FROM workers WHERE id = new.worker AND alive)
  AND new.subqueues_rev = (SELECT subqueues_rev FROM books)
  -- If more jobs are due than one statement queues, the caller promotes them first, in several statements.
  AND (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE stage = 1 AND available_at <= new.now LIMIT 10001)) <= 10000
BEGIN
  UPDATE jobs SET status = 'queued', stage = iif(turn_key IS NULL, 2, -1), arrived_at = available_at, rev = rev + 1, updated_at = new.now
  WHERE seq IN (SELECT seq FROM jobs WHERE stage = 1 AND available_at <= new.now);

  -- A repeated request: the jobs that it was given before and that are not started; maybe none.
  DELETE FROM picked;
  INSERT INTO picked (seq, fragile, expired)
  SELECT j.seq, 0, 0
  FROM jobs j CROSS JOIN subqueues l ON l.id = j.subqueue LEFT JOIN queues q ON q.name = l.queue
  WHERE j.worker = new.worker AND j.claim = new.request AND j.stage = 3
    AND j.status <> 'running'
  ORDER BY -coalesce(q.priority, 0), j.rank, j.arrived_at, j.seq;

  -- The served subqueues that are not empty: alternate between the two lists, so that the shorter one sets the cost.
  DELETE FROM tops;
  INSERT INTO tops (subqueue, place)
  WITH RECURSIVE hop (served, ready) AS (
    SELECT s.subqueue, (SELECT min(subqueue) FROM jobs WHERE stage = 2 AND subqueue >= s.subqueue)
    FROM (SELECT min(subqueue) AS subqueue FROM served WHERE ask = new.ask) s
    UNION ALL
    SELECT
      (SELECT min(subqueue) FROM served
       WHERE ask = new.ask AND subqueue >= iif(hop.served = hop.ready, hop.served + 1, hop.ready)),
      (SELECT min(subqueue) FROM jobs WHERE stage = 2 AND subqueue >= (
        SELECT min(subqueue) FROM served
        WHERE ask = new.ask AND subqueue >= iif(hop.served = hop.ready, hop.served + 1, hop.ready)))
    FROM hop WHERE hop.ready IS NOT NULL
  )
  SELECT hop.ready, -coalesce(q.priority, 0)
  FROM hop CROSS JOIN subqueues l ON l.id = hop.ready LEFT JOIN queues q ON q.name = l.queue
  WHERE hop.served = hop.ready AND NOT coalesce(q.paused, 0)
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE worker = new.worker AND claim = new.request AND stage = 3);

  -- One subqueue: in its order. With several there is no subqueue to search; a condition beside it would be tested on
  -- every job of the first. Expired jobs (a queued job's act_by is its last moment to start) are passed over; a fragile
  -- one is kept as a mark even then (see below).
  INSERT INTO picked (seq, fragile, expired)
  SELECT seq, unstarted_losses >= new.fragile_after, coalesce(act_by <= new.now, 0)
  FROM jobs
  WHERE stage = 2 AND subqueue = (SELECT iif(count(*) = 1, min(subqueue), NULL) FROM tops)
    AND (act_by IS NULL OR act_by > new.now OR unstarted_losses >= new.fragile_after)
  ORDER BY rank, arrived_at, seq
  LIMIT new.n + (
    SELECT count(*) FROM jobs
    WHERE act_by <= new.now AND stage < 3
      AND unstarted_losses >= new.fragile_after);

  -- Several subqueues, merged. The queue of the recursion has the first job of each subqueue and gives out the
  -- smallest, which is then followed by the next job of its subqueue.
  INSERT INTO picked (seq, fragile, expired)
  WITH RECURSIVE merged (place, rank, arrived_at, seq, subqueue, losses, act_by) AS (
    SELECT h.place, j.rank, j.arrived_at, j.seq, j.subqueue, j.unstarted_losses, j.act_by
    FROM tops h CROSS JOIN jobs j
      ON j.seq = (SELECT seq FROM jobs WHERE stage = 2 AND subqueue = h.subqueue ORDER BY rank, arrived_at, seq LIMIT 1)
    WHERE (SELECT count(*) FROM tops) > 1
    UNION ALL
    SELECT m.place, j.rank, j.arrived_at, j.seq, j.subqueue, j.unstarted_losses, j.act_by
    FROM merged m CROSS JOIN jobs j ON j.seq = coalesce(
      (SELECT seq FROM jobs WHERE stage = 2 AND subqueue = m.subqueue AND rank = m.rank AND arrived_at = m.arrived_at
         AND seq > m.seq ORDER BY seq LIMIT 1),
      (SELECT seq FROM jobs WHERE stage = 2 AND subqueue = m.subqueue AND rank = m.rank AND arrived_at > m.arrived_at
         ORDER BY arrived_at, seq LIMIT 1),
      (SELECT seq FROM jobs WHERE stage = 2 AND subqueue = m.subqueue AND rank > m.rank
         ORDER BY rank, arrived_at, seq LIMIT 1))
    ORDER BY 1, 2, 3, 4
  )
  SELECT seq, losses >= new.fragile_after, coalesce(act_by <= new.now, 0)
  FROM merged
  WHERE act_by IS NULL OR act_by > new.now OR losses >= new.fragile_after
  LIMIT new.n + (
    SELECT count(*) FROM jobs
    WHERE act_by <= new.now AND stage < 3
      AND unstarted_losses >= new.fragile_after);

  -- The claim ends in front of the first fragile job for which no free slot is left.
  DELETE FROM picked WHERE pos >= (
    SELECT min(pos) FROM picked
    WHERE fragile AND pos > iif(
      new.free < 1, 0, (SELECT pos FROM picked WHERE NOT expired ORDER BY pos LIMIT 1 OFFSET new.free - 1)));
  DELETE FROM picked WHERE expired;
  DELETE FROM picked WHERE EXISTS (SELECT 1 FROM tops)  -- not a repeat
    AND pos > iif(new.n < 1, 0, (SELECT pos FROM picked ORDER BY pos LIMIT 1 OFFSET new.n - 1));

  UPDATE jobs
  SET status = new.status, stage = 3, rev = rev + 1, epoch = epoch + 1, worker = new.worker, claim = new.request,
    assigned_at = max(new.now, updated_at), accepted_at = max(new.accepted_at, updated_at), act_by = new.act_by,
    updated_at = max(new.now, updated_at), unnamed = 0
  WHERE seq IN (SELECT seq FROM picked) AND +stage = 2;
END;
-- ask
INSERT INTO claim VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
RETURNING (
  {claim_top.sql}
), iif(
  -- Otherwise nothing was picked, and the table has what an earlier claim picked.
  EXISTS (SELECT 1 FROM workers WHERE id = ?1 AND alive) AND ?4 = (SELECT subqueues_rev FROM books)
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE stage = 1 AND available_at <= +?9),
  -- In the order of pos, because picked is scanned first and by its key.
  (SELECT '[' || coalesce(group_concat(r.doc, ','), '') || ']' FROM picked p CROSS JOIN record r ON r.seq = p.seq),
  '[]'),
  -- Whether it is a repeated request of which all is started.
  NOT EXISTS (SELECT 1 FROM picked) AND EXISTS (SELECT 1 FROM jobs WHERE worker = ?1 AND claim = ?2 AND stage = 3)
