-- Delete notes that were processed, and move the cursors of those that were processed in part. $1 ids of the former; $2
-- ids and $3 cursors of the latter
WITH gone AS (DELETE FROM {schema}.notes WHERE id = ANY ($1::text::bigint[]))
UPDATE {schema}.notes n SET cursor = c.cursor
FROM unnest($2::text::bigint[], $3::text::bigint[]) AS c (id, cursor) WHERE n.id = c.id
