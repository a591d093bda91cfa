-- Take the rows of these moments. ?1: [[step, moment], …]
DELETE FROM rollups WHERE rowid IN (
  SELECT r.rowid FROM json_each(?1) e CROSS JOIN rollups r ON r.step = e.value ->> 0 AND r.at = e.value ->> 1)
RETURNING step, at, task, queue, data
