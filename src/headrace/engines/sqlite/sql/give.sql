-- Give these jobs to a worker. ?1 order numbers, ?2 status, ?3 worker, ?4 request, ?5 the moment, ?6 accepted_at, ?7 act_by
UPDATE jobs
SET status = ?2, stage = 3, rev = rev + 1, epoch = epoch + 1, worker = ?3, claim = ?4,
  assigned_at = max(?5, updated_at), accepted_at = max(?6, updated_at), act_by = ?7, updated_at = max(?5, updated_at),
  unnamed = 0
WHERE seq IN (SELECT value FROM json_each(?1))
