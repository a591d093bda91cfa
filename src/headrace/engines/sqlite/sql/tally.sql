-- Add to batches. $1: [[id, total, completed, failed, cancelled, when the submitter did so or null], …], each once
UPDATE batches SET
  total = total + (e.value ->> 1), completed = completed + (e.value ->> 2), failed = failed + (e.value ->> 3),
  cancelled = cancelled + (e.value ->> 4), touched_at = max(touched_at, coalesce(e.value ->> 5, touched_at))
FROM jsonb_each($1) e WHERE batches.id = unhex(e.value ->> 0, '-')
