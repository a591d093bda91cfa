-- Complete jobs, each if it is still at its rev. A completion writes no more than this
-- (core.lifecycle.execution.KEPT_BY_COMPLETE); the worker stays on the row, as part of the attempt. From $1 on
-- columns.COMPLETE, as texts of arrays; null for a progress of 100 % and for a state that follows from the attempt.
-- Then columns.ALIKE: what is the same in all rows, with a null instead of its array. Returns the indexes of those that
-- were applied, as ~index where others wait for the job. The column tied says whether they do: the rows of waits may be
-- from a commit that this statement waited for, and cannot see.
WITH completed AS (
  UPDATE {schema}.jobs j SET
    rev = {alike_rev}, status = 'completed', stage = 4, updated_at = c.finished_at, finished_at = c.finished_at, epoch = {alike_epoch}, claim = NULL,
    act_by = NULL, unstarted_losses = 0, unnamed = 0, progress = c.progress, state = c.state, change = c.change,
    result = {alike_result}, error = NULL, number = {alike_number}, began = c.began, took = c.took::double precision,
    held_key = CASE WHEN {alike_released} THEN NULL ELSE j.held_key END
  FROM unnest({complete_arrays}) AS c ({complete_names})
  WHERE j.seq = c.seq AND j.rev = {alike_rev_before}
  RETURNING CASE j.tied WHEN 0 THEN c.place ELSE ~c.place END AS place, c.seq, c.batch
),
told AS (
  INSERT INTO {schema}.notes (kind, seq) SELECT 'e', seq FROM completed WHERE place < 0
)
