-- Mark the profiles of these jobs as live again, and what those of customers stand for; whether any was not.
WITH revived AS (
  UPDATE {schema}.profiles SET live = true
  WHERE NOT live AND id = ANY (ARRAY(
    SELECT unnest(ARRAY[p.id, p.base])
    FROM {schema}.jobs j JOIN {schema}.lines l ON l.id = j.line JOIN {schema}.profiles p ON p.id = l.profile
    WHERE j.seq = ANY ($1::bigint[])))
  RETURNING 1
)
UPDATE {schema}.books SET profiles_rev = profiles_rev + 1 WHERE EXISTS (SELECT 1 FROM revived)
