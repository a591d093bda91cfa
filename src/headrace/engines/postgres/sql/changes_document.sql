-- Changes as a document: [[columns.CHANGE], …].
WITH c AS (
  SELECT {change_values}
  FROM json_array_elements($1::text::json) AS e (r)
),
