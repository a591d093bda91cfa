-- Several lines, merged: read without locks, a few of each and more only of those that are still ahead, until the first
-- $16 of all are known; then lock of these, in order, as many as are wanted. $14 the lines, $15 the place of each,
-- $17 to $19 how many of each are read at first, next, and after that.
reach AS MATERIALIZED (SELECT $16 + n AS n FROM marks),
open_0 AS MATERIALIZED (
  SELECT line, place, (-32768)::smallint AS rank, 0::bigint AS arrived_at, 0::bigint AS seq
  FROM unnest($14::integer[], $15::integer[]) AS t (line, place)
  WHERE (SELECT ahead FROM go)
),
