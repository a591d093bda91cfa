-- Mark the profiles of these jobs as live again; whether any was not.
WITH revived AS (
  UPDATE {schema}.profiles SET live = true
  WHERE NOT live AND id = ANY (ARRAY(
    SELECT l.profile FROM {schema}.jobs j JOIN {schema}.lines l ON l.id = j.line WHERE j.seq = ANY ($1::bigint[])))
  RETURNING 1
)
UPDATE {schema}.books SET profiles_rev = profiles_rev + 1 WHERE EXISTS (SELECT 1 FROM revived)
