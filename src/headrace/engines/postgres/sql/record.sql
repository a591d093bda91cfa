j.seq, b.id, j.status, j.available_at, j.arrived_at, j.updated_at, j.rev, j.epoch, j.unstarted_losses, j.worker,
  j.claim, j.act_by, j.assigned_at, j.accepted_at, j.finished_at, j.cancel_requested_at, j.progress, j.state,
  b.payload, b.spec, j.result, j.error, j.number, j.began
