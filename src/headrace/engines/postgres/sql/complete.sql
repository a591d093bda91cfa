-- Complete jobs, each if it is still at its rev. A completion writes no more than this
-- (core.lifecycle.KEPT_BY_COMPLETE); the worker stays on the row, as part of the attempt. $1 to $14, as texts of
-- arrays: place, seq, rev before, rev, moment, epoch, change, number and start of the attempt, whether a key is
-- released, progress, state, result, batch; null for a progress of 100 % and for a state that follows from the attempt.
-- Answers the places of those that were applied, as ~place where others wait for the job. The column tied says whether
-- they do: the rows of waits may be from a commit that this statement waited for, and cannot see.
WITH completed AS (
  UPDATE {schema}.jobs j SET
    rev = c.rev, status = 'completed', stage = 4, updated_at = c.at, finished_at = c.at, epoch = c.epoch, claim = NULL,
    act_by = NULL, unstarted_losses = 0, unnamed = 0, progress = c.progress, state = c.state, change = c.change,
    result = c.result, error = NULL, number = c.number, began = c.began,
    held_key = CASE WHEN c.released THEN NULL ELSE j.held_key END
  FROM unnest(
    $1::text::integer[], $2::text::bigint[], $3::text::integer[], $4::text::integer[], $5::text::bigint[],
    $6::text::integer[], $7::text::bigint[], $8::text::integer[], $9::text::bigint[], $10::text::boolean[],
    $11::text::text[], $12::text::text[], $13::text::text[], $14::text::uuid[])
  AS c (place, seq, rev_before, rev, at, epoch, change, number, began, released, progress, state, result, batch)
  WHERE j.seq = c.seq AND j.rev = c.rev_before
  RETURNING CASE j.tied WHEN 0 THEN c.place ELSE ~c.place END AS place, c.seq, c.batch
),
told AS (
  INSERT INTO {schema}.notes (kind, seq) SELECT 'e', seq FROM completed WHERE place < 0
)
