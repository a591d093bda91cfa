-- Make a batch, unless it is here. $1: its columns, in order
INSERT INTO batches (
  id, created_at, touched_at, sealed, abandoned, total, completed, failed, cancelled, ended_at,
  cancelled_at, cancelled_by, settled, calls)
VALUES (
  unhex($1 ->> 0, '-'), $1 ->> 1, $1 ->> 2, $1 ->> 3, $1 ->> 4, $1 ->> 5, $1 ->> 6, $1 ->> 7, $1 ->> 8, $1 ->> 9,
  $1 ->> 10, $1 ->> 11, $1 ->> 12, $1 ->> 13)
ON CONFLICT DO NOTHING
