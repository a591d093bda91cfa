-- The jobs for people with psql: times as times, the task and the queue by name. Nothing in headrace reads it.
CREATE VIEW {schema}.overview AS
SELECT
  j.seq, b.id, p.task, l.queue, -j.rank AS priority, j.status, j.worker, j.rev, j.epoch,
  to_timestamp(j.arrived_at / 1e6) AS arrived_at,
  to_timestamp(j.available_at / 1e6) AS available_at,
  to_timestamp(j.assigned_at / 1e6) AS assigned_at,
  to_timestamp(j.finished_at / 1e6) AS finished_at,
  to_timestamp(j.updated_at / 1e6) AS updated_at,
  j.progress, b.payload, j.result, j.error
FROM {schema}.jobs j
  JOIN {schema}.bodies b ON b.id = j.id
  JOIN {schema}.lines l ON l.id = j.line
  JOIN {schema}.profiles p ON p.id = l.profile;
