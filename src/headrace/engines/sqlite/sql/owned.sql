-- The order number of a running job, if this worker owns it. ?1 id, ?2 worker, ?3 epoch
SELECT seq FROM jobs WHERE id = ?1 AND worker = ?2 AND epoch = ?3 AND status = 'running'
