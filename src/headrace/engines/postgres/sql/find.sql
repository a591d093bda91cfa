-- Jobs below an order number that may match, newest first. $1 below, $2 how many; the terms are those of the filter.
SELECT {record}
FROM {schema}.jobs j
  JOIN {schema}.bodies b ON b.id = j.id
WHERE j.seq < $1{terms}
ORDER BY j.seq DESC
LIMIT $2
