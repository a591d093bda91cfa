-- Take new reports, the oldest first; what another takes is left to it. $1 how many
DELETE FROM {schema}.reports
WHERE id = ANY (ARRAY(SELECT id FROM {schema}.reports ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING 0, 0::bigint, '', '', data
