-- A job as one JSON array of the columns that are read; the text of the view "record".
SELECT j.seq AS seq, json_array({record}) AS doc
FROM jobs j CROSS JOIN bodies b ON b.seq = j.seq LEFT JOIN ends e ON e.seq = j.seq
