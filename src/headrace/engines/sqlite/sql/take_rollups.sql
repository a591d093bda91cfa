-- Take rows that have become another step, or are too old. ?1 minutes, ?2 hours, ?3 days before this, ?4 how many
DELETE FROM rollups WHERE rowid IN (
  SELECT r.rowid
  FROM (SELECT 60 AS step, ?1 AS before UNION ALL SELECT 3600, ?2 UNION ALL SELECT 86400, ?3) d
    CROSS JOIN rollups r ON r.step = d.step AND r.at < d.before
  LIMIT ?4 + 0)
RETURNING step, at, task, queue, data
