-- Take the rows of these moments; what another takes is left to it. $1 steps, $2 moments, as texts of arrays
DELETE FROM {schema}.rollups WHERE ctid = ANY (ARRAY(
  SELECT r.ctid
  FROM {schema}.rollups r JOIN unnest($1::text::integer[], $2::text::bigint[]) AS p (step, at) ON p.step = r.step AND p.at = r.at
  FOR UPDATE OF r SKIP LOCKED))
RETURNING step, at, task, queue, data
