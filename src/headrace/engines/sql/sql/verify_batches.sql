-- Batches with counts that differ from those of their jobs. Of jobs that ended, some may be pruned.
SELECT {batch_id} AS about,
  'it counts ' || (b.total - b.completed - b.failed - b.cancelled) || ' live jobs and ' || b.completed || ' completed, '
  || b.failed || ' failed, ' || b.cancelled || ' cancelled ones; there are ' || coalesce(m.live, 0) || ' and '
  || coalesce(m.completed, 0) || ', ' || coalesce(m.failed, 0) || ', ' || coalesce(m.cancelled, 0) AS what
FROM ({counted_batches.sql}) b LEFT JOIN (
  SELECT l.label, count(*) FILTER (WHERE j.stage < 4) AS live,
    count(*) FILTER (WHERE j.status = {completed}) AS completed, count(*) FILTER (WHERE j.status = {failed}) AS failed,
    count(*) FILTER (WHERE j.status = {cancelled}) AS cancelled
  FROM {schema}.labels l JOIN {schema}.jobs j ON j.seq = l.seq WHERE l.label >= 'b' AND l.label < 'c' GROUP BY 1
) m ON m.label = 'b' || {batch_id}
WHERE b.total - b.completed - b.failed - b.cancelled <> coalesce(m.live, 0) OR b.completed < coalesce(m.completed, 0)
  OR b.failed < coalesce(m.failed, 0) OR b.cancelled < coalesce(m.cancelled, 0)
