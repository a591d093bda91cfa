-- Several subqueues, merged: read without locks, first a few jobs of each subqueue, then more of those with next jobs
-- that may still be among the first, until the first $16 of all are known. Then lock as many of these as are wanted, in
-- order. $14 the subqueues, $15 the position of each, $17 to $19 how many jobs of each subqueue the first three levels
-- read.
reach AS MATERIALIZED (SELECT $16 + n AS n FROM marks),
open_0 AS MATERIALIZED (
  SELECT subqueue, place, (-32768)::smallint AS rank, 0::bigint AS arrived_at, 0::bigint AS seq
  FROM unnest($14::integer[], $15::integer[]) AS t (subqueue, place)
  WHERE (SELECT ahead FROM go)
),
