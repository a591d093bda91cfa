UPDATE {schema}.heads h
SET last = CASE WHEN t.turned THEN {now} ELSE h.last END,
  rank = CASE WHEN h.line = t.line THEN t.rank ELSE h.rank END,
  at = CASE
    WHEN h.line = t.line THEN greatest(t.at, CASE WHEN t.turned THEN {now} ELSE h.last END)
    -- A clock was set back, and the last turn is in the future: do not keep the key behind until then. Its jobs are at
    -- this place or further back.
    WHEN h.last > {now} THEN {now}
    ELSE greatest(h.at, {now}) END,
  seq = CASE WHEN h.line = t.line THEN t.seq ELSE h.seq END
FROM unnest({tasks}::text::text[], {keys}::text::text[], {lines}::text::integer[], {ranks}::text::smallint[],
  {ats}::text::bigint[], {seqs}::text::bigint[], {turned}::text::boolean[])
  AS t (task, key, line, rank, at, seq, turned)
-- A turn counts in every line of the task.
WHERE h.task = t.task AND h.key = t.key AND (t.turned OR h.line = t.line)
