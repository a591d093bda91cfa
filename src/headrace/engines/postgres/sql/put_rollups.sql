-- Write rows. $1 steps, $2 moments, $3 tasks, $4 queues, $5 totals, as texts of arrays
INSERT INTO {schema}.rollups (step, at, task, queue, data)
SELECT * FROM unnest($1::text::integer[], $2::text::bigint[], $3::text::text[], $4::text::text[], $5::text::text[])
