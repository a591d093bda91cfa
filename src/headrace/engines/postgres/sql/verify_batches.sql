-- Batches with counts, including those still to be added up, that differ from those of their jobs. Of jobs that ended,
-- some may be pruned.
SELECT b.id::text AS about,
  'it counts ' || (b.total - b.completed - b.failed - b.cancelled) || ' live jobs and ' || b.completed || ' completed, '
  || b.failed || ' failed, ' || b.cancelled || ' cancelled ones; there are ' || coalesce(m.live, 0) || ' and '
  || coalesce(m.completed, 0) || ', ' || coalesce(m.failed, 0) || ', ' || coalesce(m.cancelled, 0) AS what
FROM (
  SELECT b.id, b.total + coalesce(d.total, 0) AS total, b.completed + coalesce(d.completed, 0) AS completed,
    b.failed + coalesce(d.failed, 0) AS failed, b.cancelled + coalesce(d.cancelled, 0) AS cancelled
  FROM {schema}.batches b LEFT JOIN (
    SELECT batch, sum(total) AS total, sum(completed) AS completed, sum(failed) AS failed, sum(cancelled) AS cancelled
    FROM {schema}.batch_counts GROUP BY batch
  ) d ON d.batch = b.id
) b LEFT JOIN (
  SELECT l.label, count(*) FILTER (WHERE j.stage < 4) AS live,
    count(*) FILTER (WHERE j.status = {completed}) AS completed, count(*) FILTER (WHERE j.status = {failed}) AS failed,
    count(*) FILTER (WHERE j.status = {cancelled}) AS cancelled
  FROM {schema}.labels l JOIN {schema}.jobs j ON j.seq = l.seq WHERE left(l.label, 1) = 'b' GROUP BY 1
) m ON m.label = 'b' || b.id
WHERE b.total - b.completed - b.failed - b.cancelled <> coalesce(m.live, 0) OR b.completed < coalesce(m.completed, 0)
  OR b.failed < coalesce(m.failed, 0) OR b.cancelled < coalesce(m.cancelled, 0)
