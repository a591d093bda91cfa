-- Batches with all their counts, added up already or not: in one statement, so that nothing is missed or counted twice.
SELECT b.id, b.created_at, greatest(b.touched_at, c.at), b.sealed, b.abandoned, b.settled,
  b.total + coalesce(c.total, 0) AS total, b.completed + coalesce(c.completed, 0) AS completed,
  b.failed + coalesce(c.failed, 0) AS failed, b.cancelled + coalesce(c.cancelled, 0) AS cancelled,
  b.ended_at, b.cancelled_at, b.cancelled_by, b.calls, b.customer
FROM {schema}.batches b CROSS JOIN LATERAL (
  SELECT max(at) AS at, sum(total)::bigint AS total, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,
    sum(cancelled)::bigint AS cancelled
  FROM {schema}.batch_counts WHERE batch = b.id
) c
