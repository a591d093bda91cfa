-- The last entries of one kind behind a cursor, newest first. $1 job id, $2 kind, $3 and $4 cursor, $5 maximum
SELECT {entry_read} FROM {schema}.entries e
WHERE e.seq = (SELECT b.seq FROM {schema}.{ids} b WHERE b.id = $1) AND e.kind = $2
  AND (e.attempt, e.number) > (CAST($3 AS integer), CAST($4 AS integer))
ORDER BY e.attempt DESC, e.number DESC LIMIT $5 + 0
