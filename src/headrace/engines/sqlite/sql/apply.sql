-- Apply decided changes, each if its rev still holds, in one step.
-- rows: [[seq, rev before, rev, status, stage, updated_at, epoch, unstarted_losses, worker, claim, act_by, assigned_at,
--         accepted_at, finished_at, available_at, arrived_at, cancel_requested_at, progress, state, key, change, result,
--         error, number of the attempt, attempt, event, ended], …]
--   key: 0 keeps it, 1 releases it, a text takes it
--   ended: whether the change has the note that the job ended
-- reports (of progress): [[seq, rev, progress, updated_at], …]
CREATE TEMP TABLE missed (row INTEGER, report INTEGER);
CREATE TEMP VIEW turn AS SELECT NULL AS rows, NULL AS reports;
CREATE TEMP VIEW turned AS
SELECT NULL AS place, NULL AS seq, NULL AS rev_before, NULL AS rev, NULL AS status, NULL AS stage, NULL AS updated_at,
  NULL AS epoch, NULL AS unstarted_losses, NULL AS worker, NULL AS claim, NULL AS act_by, NULL AS assigned_at,
  NULL AS accepted_at, NULL AS finished_at, NULL AS available_at, NULL AS arrived_at, NULL AS cancel_requested_at,
  NULL AS progress, NULL AS state, NULL AS key, NULL AS change, NULL AS result, NULL AS error, NULL AS number,
  NULL AS attempt, NULL AS event, NULL AS ended;

CREATE TEMP TRIGGER turning INSTEAD OF INSERT ON turn BEGIN
  DELETE FROM missed;
  INSERT INTO turned
  SELECT key, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    unhex(value ->> 8, '-'), value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14,
    value ->> 15, value ->> 16, value ->> 17, value ->> 18, value ->> 19, value ->> 20, value ->> 21, value ->> 22,
    value ->> 23, value ->> 24, value ->> 25, value ->> 26
  FROM jsonb_each(new.rows);
  INSERT INTO missed (report)
  SELECT e.key FROM jsonb_each(new.reports) e LEFT JOIN jobs j ON j.seq = e.value ->> 0 WHERE j.rev IS NOT e.value ->> 1;
  UPDATE jobs SET progress = e.value ->> 2, updated_at = e.value ->> 3
  FROM jsonb_each(new.reports) e WHERE jobs.seq = e.value ->> 0 AND jobs.rev = e.value ->> 1;
END;

CREATE TEMP TRIGGER turning_one INSTEAD OF INSERT ON turned BEGIN
  INSERT INTO missed (row)
  SELECT new.place WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE seq = new.seq AND rev = new.rev_before);
  SELECT raise(IGNORE) WHERE changes() = 1;
  -- An end is noted only where others wait for the job.
  INSERT INTO notes (kind, seq, cursor) SELECT 'ended', seq, 0 FROM jobs WHERE new.ended AND seq = new.seq AND tied;
  UPDATE jobs SET
    rev = new.rev, status = new.status, stage = new.stage, updated_at = new.updated_at, epoch = new.epoch,
    unstarted_losses = new.unstarted_losses, worker = new.worker, claim = new.claim, act_by = new.act_by,
    assigned_at = new.assigned_at, accepted_at = new.accepted_at, finished_at = new.finished_at,
    available_at = new.available_at, arrived_at = new.arrived_at, cancel_requested_at = new.cancel_requested_at,
    progress = new.progress, state = new.state, change = new.change,
    held_key = CASE new.key WHEN 0 THEN held_key WHEN 1 THEN NULL ELSE new.key END,
    unnamed = iif(worker IS new.worker AND epoch = new.epoch, unnamed, 0)
  WHERE seq = new.seq;
  INSERT INTO ends (seq, result, error)
  SELECT new.seq, new.result, new.error WHERE new.result IS NOT NULL OR new.error IS NOT NULL
  ON CONFLICT (seq) DO UPDATE SET result = excluded.result, error = excluded.error;
  -- A run of equal attempts shares one record: counted together, ended when the last one did.
  INSERT INTO attempts (seq, number, data) SELECT new.seq, new.number, new.attempt WHERE new.number IS NOT NULL
  ON CONFLICT (seq, number) DO UPDATE SET data = json_set(
    data, '$[0]', (data ->> 0) + (excluded.data ->> 0), '$[1]', excluded.data ->> 1);
  INSERT INTO events (seq, data) SELECT new.seq, new.event WHERE new.event IS NOT NULL;
END;
-- ask
INSERT INTO turn VALUES (?1, ?2) RETURNING (SELECT json_group_array(row) FROM missed WHERE row IS NOT NULL),
  (SELECT json_group_array(report) FROM missed WHERE report IS NOT NULL),
  -- Those of the jobs whose end was noted are among the newest notes. ?3 how many rows; bare, it would have this
  -- compiled anew whenever it is bound.
  (SELECT json_group_array(seq) FROM (SELECT seq, kind FROM notes ORDER BY id DESC LIMIT ?3 + 0) WHERE kind = 'ended')
