-- Apply decided changes, each if the job is still at its rev. notes: the first letters of the notes; that of an end is
-- written only if others wait for the job. tally: [batch, completed, failed, cancelled]. Returns the indexes of those
-- that were applied, as ~index where an end was noted.
changed AS (
  UPDATE {schema}.jobs j SET
    {change_sets},
    unnamed = CASE WHEN j.worker IS NOT DISTINCT FROM c.worker AND j.epoch = c.epoch THEN j.unnamed ELSE 0 END
  FROM c WHERE j.seq = c.seq AND j.rev = c.rev_before
  RETURNING CASE WHEN j.tied <> 0 AND position('e' IN c.notes) > 0 THEN ~c.place ELSE c.place END AS place,
    c.seq, c.attempt_number, c.attempt, c.event, c.notes, c.tally, c.stage, j.subqueue, j.turn_key, j.rank, j.arrived_at
),
{in_turn.sql arrived=changed},
tried AS (
  -- A streak of equal attempts shares one record, with their count and the end of the last one.
  INSERT INTO {schema}.attempts (seq, number, data) SELECT seq, attempt_number, attempt FROM changed
  WHERE attempt_number IS NOT NULL
  ON CONFLICT (seq, number) DO UPDATE
  SET folded = attempts.folded + (excluded.data::json ->> 0)::integer, until = (excluded.data::json ->> 1)::bigint
),
logged AS (
  INSERT INTO {schema}.events (seq, data) SELECT seq, event FROM changed WHERE event IS NOT NULL
)
