-- A job as one JSON array, in the order of rows.Record.
CREATE TEMP VIEW record AS
SELECT
  j.seq AS seq,
  json_array(
    j.seq, hex(j.id), j.status, j.available_at, j.arrived_at, j.updated_at, j.rev, j.epoch, j.unstarted_losses,
    iif(j.worker IS NULL, NULL, hex(j.worker)), j.claim, j.act_by, j.assigned_at, j.accepted_at, j.finished_at,
    j.cancel_requested_at, j.progress, j.state, b.payload, b.spec, e.result, e.error
  ) AS doc
FROM jobs j CROSS JOIN bodies b ON b.seq = j.seq LEFT JOIN ends e ON e.seq = j.seq;
