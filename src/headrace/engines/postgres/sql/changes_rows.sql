-- Changes as the texts of arrays, one for each of columns.CHANGE.
WITH c AS (SELECT * FROM unnest({change_arrays}) AS t ({change_names})),
