-- Remove ended jobs with all that is stored of them, and count them. before: [[status, moment, moment up to which they
-- were checked before], …]; core.lifecycle.retention.is_past.
CREATE TEMP TABLE old (seq INTEGER PRIMARY KEY);
CREATE TEMP VIEW pruning AS SELECT NULL AS before, NULL AS n, NULL AS now;
CREATE TEMP TRIGGER prune INSTEAD OF INSERT ON pruning BEGIN
  DELETE FROM old;
  INSERT INTO old
  SELECT j.seq FROM jsonb_each(new.before) e CROSS JOIN jobs j
  WHERE j.stage >= 4 AND j.status = e.value ->> 0 AND j.finished_at <= e.value ->> 1
    AND j.finished_at > e.value ->> 2 AND (j.keep IS NULL OR j.keep ->> j.status IS NULL)
    -- A live job that waits for it, or waited and may read its result.
    AND NOT (j.tied AND EXISTS (
      SELECT 1 FROM waits w CROSS JOIN jobs c ON c.seq = w.child WHERE w.parent = j.seq AND c.stage < 4))
    -- A child that its parent may look for: core.lifecycle.family.may_be_looked_for.
    AND (j.finished_at <= (SELECT min(value ->> 1) FROM jsonb_each(new.before)) OR NOT EXISTS (
      SELECT 1 FROM labels l CROSS JOIN jobs p ON p.id = unhex(substr(l.label, 2), '-')
      WHERE l.seq = j.seq AND l.label >= 'p' AND l.label < 'q' AND p.stage <> 4))
    -- A job that still holds its dedup key for its period: core.lifecycle.deduplication.has_lapsed.
    AND (j.held_key IS NULL OR e.value ->> 1 >= (
      SELECT j.created_at + round(1000000 * coalesce(b.spec ->> 'dedup_for', 0)) FROM bodies b WHERE b.seq = j.seq))
  LIMIT new.n;
  -- The same for those with a retention of their own.
  INSERT INTO old
  SELECT j.seq FROM jobs j
  WHERE j.stage >= 4 AND j.keep IS NOT NULL AND j.finished_at + (j.keep ->> j.status) <= new.now
    AND NOT (j.tied AND EXISTS (
      SELECT 1 FROM waits w CROSS JOIN jobs c ON c.seq = w.child WHERE w.parent = j.seq AND c.stage < 4))
    AND (j.finished_at <= (SELECT min(value ->> 1) FROM jsonb_each(new.before)) OR NOT EXISTS (
      SELECT 1 FROM labels l CROSS JOIN jobs p ON p.id = unhex(substr(l.label, 2), '-')
      WHERE l.seq = j.seq AND l.label >= 'p' AND l.label < 'q' AND p.stage <> 4))
    AND (j.held_key IS NULL OR new.now - (j.keep ->> j.status) >= (
      SELECT j.created_at + round(1000000 * coalesce(b.spec ->> 'dedup_for', 0)) FROM bodies b WHERE b.seq = j.seq))
  LIMIT max(0, new.n - (SELECT count(*) FROM old));
  -- The turns of their keys: core.limits.selection.forgets, core.lifecycle.retention.latest_end.
  DELETE FROM heads WHERE rank IS NULL AND last <= max((SELECT max(value ->> 1) FROM jsonb_each(new.before)),
      coalesce((SELECT max(j.finished_at) FROM old o CROSS JOIN jobs j ON j.seq = o.seq), 0))
    AND (task, key) IN (
      SELECT p.task, j.turn_key
      FROM old o CROSS JOIN jobs j ON j.seq = o.seq
        CROSS JOIN subqueues l ON l.id = j.subqueue CROSS JOIN profiles p ON p.id = l.profile
      WHERE j.turn_key IS NOT NULL);
  UPDATE books SET pruned = pruned + (SELECT count(*) FROM old),
    pruned_completed = pruned_completed + kinds.completed, pruned_failed = pruned_failed + kinds.failed,
    pruned_cancelled = pruned_cancelled + kinds.cancelled,
    own_pruned_completed = own_pruned_completed + kinds.own_completed,
    own_pruned_failed = own_pruned_failed + kinds.own_failed,
    own_pruned_cancelled = own_pruned_cancelled + kinds.own_cancelled
  FROM (
    SELECT count(*) FILTER (WHERE j.status = {completed}) AS completed, count(*) FILTER (WHERE j.status = {failed}) AS failed,
      count(*) FILTER (WHERE j.status = {cancelled}) AS cancelled,
      count(*) FILTER (WHERE j.status = {completed} AND {own_task}) AS own_completed,
      count(*) FILTER (WHERE j.status = {failed} AND {own_task}) AS own_failed,
      count(*) FILTER (WHERE j.status = {cancelled} AND {own_task}) AS own_cancelled
    FROM old o CROSS JOIN jobs j ON j.seq = o.seq
      CROSS JOIN subqueues l ON l.id = j.subqueue CROSS JOIN profiles p ON p.id = l.profile
  ) AS kinds;
  DELETE FROM bodies WHERE seq IN (SELECT seq FROM old);
  DELETE FROM ends WHERE seq IN (SELECT seq FROM old);
  DELETE FROM attempts WHERE seq IN (SELECT seq FROM old);
  DELETE FROM events WHERE seq IN (SELECT seq FROM old);
  DELETE FROM labels WHERE seq IN (SELECT seq FROM old);
  DELETE FROM waits WHERE child IN (SELECT seq FROM old);
  DELETE FROM entries WHERE seq IN (SELECT seq FROM old);
  DELETE FROM jobs WHERE seq IN (SELECT seq FROM old);
  DELETE FROM subqueue_blocks WHERE (subqueue, block) IN (
    SELECT b.subqueue, b.block FROM subqueues l CROSS JOIN subqueue_blocks b ON b.subqueue = l.id
    WHERE b.block < (SELECT min(seq) FROM jobs) >> 10);
  DELETE FROM time_blocks WHERE block < (SELECT min(seq) FROM jobs) >> 12;
  DELETE FROM batches WHERE id IN (
    SELECT id FROM batches
    WHERE settled AND coalesce(ended_at, 0) <= (SELECT min(value ->> 1) FROM jsonb_each(new.before)) LIMIT new.n);
END;
-- ask
INSERT INTO pruning VALUES (?1, ?2, ?3) RETURNING (SELECT count(*) FROM old)
