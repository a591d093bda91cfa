-- Store a batch of new jobs in one statement; fails as a whole if an id or a key is stored already.
-- rows: [[columns.NEW], …]; labels and requests: [[index of the row, label or request key], …]; n: how many rows;
-- lists: [[the subqueues of the rows], [the spans of time in which they were created]]; stakes: [[customer, subqueue],
-- …] or null
CREATE TEMP VIEW arrival AS
SELECT NULL AS rows, NULL AS labels, NULL AS requests, NULL AS n, NULL AS lists, NULL AS collected, NULL AS stakes;
CREATE TEMP TRIGGER arriving INSTEAD OF INSERT ON arrival BEGIN
  -- The subqueues in the rows were interned earlier. If any were collected since, these numbers are not valid.
  SELECT raise(ABORT, 'subqueues were collected') FROM books WHERE collected <> new.collected;
  SELECT raise(ABORT, 'a stake was given up') FROM json_each(new.stakes) e
  WHERE NOT EXISTS (SELECT 1 FROM stakes s WHERE s.customer = e.value ->> 0 AND s.subqueue = e.value ->> 1);
{insert_rows}
END;
-- ask
INSERT INTO arrival VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING (SELECT last_seq FROM books)
