-- Of what jobs have "told" and what was "sent", the numbers between: see verify_messages.sql.
points AS (
  SELECT about, target, messages, at, 0 AS number, made FROM told
  UNION ALL
  SELECT o.about, o.target, o.messages, o.at, s.number, s.made FROM told o JOIN sent s USING (about, target)
  WHERE s.number BETWEEN 1 AND o.messages
),
gaps AS (
  SELECT *, lead(number, 1, messages + 1) OVER (PARTITION BY about, target ORDER BY number) AS next FROM points
  WHERE (about, target) NOT IN (SELECT about, target FROM sent WHERE number IS NULL)
)
SELECT about, 'of ' || messages || ' messages to ' || target || ', ' || (next - number - 1) || ' are missing, from number '
  || (number + 1) || ' on' AS what
FROM gaps WHERE next > number + 1 AND (made > $1 OR (next = messages + 1 AND at{binary} > $2))
