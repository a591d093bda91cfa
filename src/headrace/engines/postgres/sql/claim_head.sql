-- What a claim must know before it picks: $1 worker, $2 request, $3 subqueues_rev and $4 settings_rev at which the
-- subqueues were read, $5 the moment, $6 whether to pick although deferred jobs are due. Jobs with keys are left to
-- limited claims.
WITH me AS MATERIALIZED (
  -- Burying waits for this lock, so that no claim commits for a worker that is dead already.
  SELECT 1 FROM {schema}.workers WHERE id = $1 AND alive FOR KEY SHARE
),
head AS MATERIALIZED (
  SELECT EXISTS (SELECT 1 FROM me) AS alive, subqueues_rev, profiles_rev, settings_rev,
    (SELECT min(available_at) FROM {schema}.jobs WHERE stage = 1) AS next_due,
    -- Whether this is a repeated request. Checked with the row of the worker locked, not before: a claim that waits for
    -- that lock must not block a repeat that has it.
    CASE WHEN EXISTS (SELECT 1 FROM me) THEN {schema}.is_repeat($1, $2) ELSE false END AS again,
    {keyed} AS keyed
  FROM {schema}.books
),
go AS MATERIALIZED (
  SELECT alive AND NOT again AND NOT keyed AND subqueues_rev = $3 AND settings_rev = $4
    AND ($6 OR next_due IS NULL OR next_due > $5) AS ahead
  FROM head
),
-- Expired jobs are not given, but if one is fragile, a claim must end in front of it: see below.
marks AS MATERIALIZED (
  SELECT count(*) AS n FROM {schema}.jobs
  WHERE act_by <= $5 AND act_by IS NOT NULL AND stage < 3 AND unstarted_losses > 0 AND unstarted_losses >= $9
),
