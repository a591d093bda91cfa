-- The records of jobs, newest first; the word is replaced by the statement that finds their order numbers.
SELECT {record}
FROM ({found}) f
  JOIN {schema}.jobs j ON j.seq = f.seq
  JOIN {schema}.bodies b ON b.id = j.id
ORDER BY j.seq DESC
