UPDATE {schema}.heads h
SET last = CASE WHEN t.turned THEN {now} ELSE h.last END,
  rank = CASE WHEN h.subqueue = t.subqueue THEN t.rank ELSE h.rank END,
  at = CASE
    WHEN h.subqueue = t.subqueue THEN greatest(t.at, CASE WHEN t.turned THEN {now} ELSE h.last END)
    -- A clock was set back, and the last turn is in the future: do not keep the key behind until then. Its jobs are at
    -- this position or further back.
    WHEN h.last > {now} THEN {now}
    ELSE greatest(h.at, {now}) END,
  seq = CASE WHEN h.subqueue = t.subqueue THEN t.seq ELSE h.seq END
FROM unnest({tasks}::text::text[], {keys}::text::text[], {subqueues}::text::integer[], {ranks}::text::smallint[],
  {ats}::text::bigint[], {seqs}::text::bigint[], {turned}::text::boolean[])
  AS t (task, key, subqueue, rank, at, seq, turned)
-- A turn counts in every subqueue of the task.
WHERE h.task = t.task AND h.key = t.key AND (t.turned OR h.subqueue = t.subqueue)
