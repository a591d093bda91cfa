-- What insert.sql does, for one new job that has neither labels nor keys: its values are bound as they are, and nothing
-- is taken from JSON. Fails if its id is stored already. The values of columns.NEW; bucket: the span of time in which
-- it was created
CREATE TEMP VIEW lone_arrival AS SELECT {one_nulls}, NULL AS bucket, NULL AS collected;
CREATE TEMP TRIGGER arriving_alone INSTEAD OF INSERT ON lone_arrival BEGIN
  SELECT raise(ABORT, 'subqueues were collected') FROM books WHERE collected <> new.collected;
  {count_jobs};
  INSERT INTO jobs (seq, {new_columns}, rev, epoch, unstarted_losses, unnamed)
  SELECT last_seq + 1, {one_values}, 1, 0, 0, 0 FROM books;
  INSERT INTO bodies (seq, payload, spec) SELECT last_seq + 1, new.payload, new.spec FROM books;
  INSERT OR IGNORE INTO subqueue_blocks (subqueue, block) SELECT new.subqueue, last_seq + 1 >> 10 FROM books;
  INSERT OR IGNORE INTO time_blocks (block, bucket) SELECT last_seq + 1 >> 12, new.bucket FROM books;
  UPDATE books SET last_seq = last_seq + 1, accepted = accepted + 1;
END;
-- ask
INSERT INTO lone_arrival VALUES ({one_parameters}) RETURNING (SELECT last_seq FROM books)
