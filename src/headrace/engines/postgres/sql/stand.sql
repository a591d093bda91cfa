UPDATE {schema}.heads h
SET last = CASE WHEN t.turned THEN greatest(h.last, {now}) ELSE h.last END,
  rank = CASE WHEN h.line = t.line THEN t.rank ELSE h.rank END,
  at = greatest(CASE WHEN h.line = t.line THEN t.at ELSE h.at END, h.last, CASE WHEN t.turned THEN {now} END),
  seq = CASE WHEN h.line = t.line THEN t.seq ELSE h.seq END
FROM unnest({tasks}::text::text[], {keys}::text::text[], {lines}::text::integer[], {ranks}::text::smallint[],
  {ats}::text::bigint[], {seqs}::text::bigint[], {turned}::text::boolean[])
  AS t (task, key, line, rank, at, seq, turned)
-- A turn counts in every line of the task.
WHERE h.task = t.task AND h.key = t.key AND (t.turned OR h.line = t.line)
