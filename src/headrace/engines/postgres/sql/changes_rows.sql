-- Changes as arrays: see apply.sql for what they hold.
WITH c AS (
  SELECT * FROM unnest(
    $1::integer[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::smallint[], $7::bigint[], $8::integer[],
    $9::integer[], $10::uuid[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[],
    $16::bigint[], $17::bigint[], $18::bigint[], $19::text[], $20::text[], $21::text[], $22::bigint[], $23::text[],
    $24::text[], $25::integer[], $26::text[], $27::text[])
  AS t (
    place, seq, rev_before, rev, status, stage, updated_at, epoch, unstarted_losses, worker, claim, act_by, assigned_at,
    accepted_at, finished_at, available_at, arrived_at, cancel_requested_at, progress, state, key, change, result,
    error, number, attempt, event)
),
