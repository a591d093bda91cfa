-- What insert.sql does, for one new job that has neither labels nor keys: its values are bound as they are, and nothing
-- is taken from JSON. Fails if its id is stored already.
-- The values of columns.NEW; bucket: the span of time in which it was created
CREATE TEMP VIEW lone_arrival AS SELECT {one_nulls}, NULL AS bucket, NULL AS collected;
CREATE TEMP TRIGGER arriving_alone INSTEAD OF INSERT ON lone_arrival BEGIN
  SELECT raise(ABORT, 'lines were collected') FROM books WHERE collected <> new.collected;
  UPDATE books SET accepted = accepted + n.last - counted, counted = n.last FROM numbers AS n WHERE n.last <> counted;
  INSERT INTO jobs (seq, {new_columns}, rev, epoch, unstarted_losses, unnamed)
  SELECT counted + 1, {one_values}, 1, 0, 0, 0 FROM books;
  INSERT INTO bodies (seq, payload, spec) SELECT counted + 1, new.payload, new.spec FROM books;
  INSERT OR IGNORE INTO line_blocks (line, block) SELECT new.line, counted + 1 >> 10 FROM books;
  INSERT OR IGNORE INTO time_blocks (block, bucket) SELECT counted + 1 >> 12, new.bucket FROM books;
  UPDATE books SET counted = counted + 1, accepted = accepted + 1;
END;
-- ask
INSERT INTO lone_arrival VALUES ({one_parameters}) RETURNING (SELECT counted FROM books)
