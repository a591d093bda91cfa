-- Changes as the texts of arrays: see apply.sql for what they hold.
WITH c AS (
  SELECT * FROM unnest(
    $1::text::integer[], $2::text::bigint[], $3::text::integer[], $4::text::integer[], $5::text::text[],
    $6::text::smallint[], $7::text::bigint[], $8::text::integer[], $9::text::integer[], $10::text::uuid[],
    $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
    $16::text::bigint[], $17::text::bigint[], $18::text::bigint[], $19::text::text[], $20::text::text[],
    $21::text::text[], $22::text::bigint[], $23::text::text[], $24::text::text[], $25::text::integer[],
    $26::text::text[], $27::text::text[], $28::text::text[], $29::text::text[])
  AS t (
    place, seq, rev_before, rev, status, stage, updated_at, epoch, unstarted_losses, worker, claim, act_by, assigned_at,
    accepted_at, finished_at, available_at, arrived_at, cancel_requested_at, progress, state, key, change, result,
    error, number, attempt, event, notes, tally)
),
