-- Apply decided changes, each if its rev still holds, in one step.
-- rows: [[seq, rev before, rev, status, updated_at, epoch, attempt, charged, unstarted_losses, worker, claim, act_by,
--         assigned_at, accepted_at, started_at, first_started_at, finished_at, available_at, arrived_at, not_after,
--         cancel_requested_at, reason, streak, progress, redrives, waits, key, change], …]
--   key: 0 keeps it, 1 releases it, a text takes it
-- ends: [[seq, rev before, result, error], …]; attempts: [[seq, rev before, number, data, count, finished_at], …]
-- events: [[seq, rev before, data], …]; notes (progress): [[seq, rev, progress, updated_at], …]
CREATE TEMP TABLE missed (rows TEXT, notes TEXT);
INSERT INTO missed VALUES ('[]', '[]');
CREATE TEMP VIEW turn AS SELECT NULL AS rows, NULL AS ends, NULL AS attempts, NULL AS events, NULL AS notes;
CREATE TEMP TRIGGER turning INSTEAD OF INSERT ON turn BEGIN
  UPDATE missed SET
    rows = (SELECT json_group_array(e.key) FROM jsonb_each(new.rows) e LEFT JOIN jobs j ON j.seq = e.value ->> 0
      WHERE j.rev IS NOT e.value ->> 1),
    notes = (SELECT json_group_array(e.key) FROM jsonb_each(new.notes) e LEFT JOIN jobs j ON j.seq = e.value ->> 0
      WHERE j.rev IS NOT e.value ->> 1);
  INSERT INTO ends (seq, result, error)
  SELECT j.seq, e.value ->> 2, e.value ->> 3
  FROM jsonb_each(new.ends) e CROSS JOIN jobs j ON j.seq = e.value ->> 0 AND j.rev = e.value ->> 1 WHERE true
  ON CONFLICT (seq) DO UPDATE SET result = excluded.result, error = excluded.error;
  INSERT INTO attempts (seq, number, data)
  SELECT j.seq, e.value ->> 2, e.value ->> 3
  FROM jsonb_each(new.attempts) e CROSS JOIN jobs j ON j.seq = e.value ->> 0 AND j.rev = e.value ->> 1 WHERE true
  ON CONFLICT (seq, number) DO UPDATE SET data = json_set(
    data, '$.count', coalesce(data ->> '$.count', 1) + coalesce(excluded.data ->> '$.count', 1),
    '$.finished_at', excluded.data ->> '$.finished_at');
  INSERT INTO events (seq, data)
  SELECT j.seq, e.value ->> 2
  FROM jsonb_each(new.events) e CROSS JOIN jobs j ON j.seq = e.value ->> 0 AND j.rev = e.value ->> 1;
  UPDATE jobs SET progress = e.value ->> 2, updated_at = e.value ->> 3
  FROM jsonb_each(new.notes) e WHERE jobs.seq = e.value ->> 0 AND jobs.rev = e.value ->> 1;
  UPDATE jobs SET
    rev = e.value ->> 2, status = e.value ->> 3, updated_at = e.value ->> 4, epoch = e.value ->> 5,
    attempt = e.value ->> 6, charged = e.value ->> 7, unstarted_losses = e.value ->> 8,
    worker = unhex(e.value ->> 9, '-'), claim = e.value ->> 10, act_by = e.value ->> 11, assigned_at = e.value ->> 12,
    accepted_at = e.value ->> 13, started_at = e.value ->> 14, first_started_at = e.value ->> 15,
    finished_at = e.value ->> 16, available_at = e.value ->> 17, arrived_at = e.value ->> 18,
    not_after = e.value ->> 19, cancel_requested_at = e.value ->> 20, reason = e.value ->> 21,
    streak = e.value ->> 22, progress = e.value ->> 23, redrives = e.value ->> 24, waits = e.value ->> 25,
    held_key = CASE e.value ->> 26 WHEN 0 THEN held_key WHEN 1 THEN NULL ELSE e.value ->> 26 END,
    change = e.value ->> 27,
    unnamed = iif(worker IS unhex(e.value ->> 9, '-') AND epoch = e.value ->> 5, unnamed, 0)
  FROM jsonb_each(new.rows) e WHERE jobs.seq = e.value ->> 0 AND jobs.rev = e.value ->> 1;
END;
-- ask
INSERT INTO turn VALUES (?1, ?2, ?3, ?4, ?5) RETURNING (SELECT rows FROM missed), (SELECT notes FROM missed)
