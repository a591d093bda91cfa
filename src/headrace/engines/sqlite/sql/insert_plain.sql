-- What insert_one.sql does, for a job that is queued at once, with a known order number that is listed in the blocks:
-- it only checks whether the number is the next one, and does not write the table books. Fails if it is not the next
-- one, or if the id is stored already. The values of columns.PLAIN
CREATE TEMP VIEW plain_arrival AS SELECT NULL AS seq, NULL AS collected, {plain_nulls};
CREATE TEMP TRIGGER arriving_plainly INSTEAD OF INSERT ON plain_arrival BEGIN
  SELECT raise(ABORT, 'another number is the next') FROM books
  WHERE new.seq <> {last_number} + 1 OR collected <> new.collected;
  INSERT INTO jobs (seq, {plain_columns}, rev, epoch, unstarted_losses, unnamed)
  VALUES (new.seq, {plain_values}, 1, 0, 0, 0);
  INSERT INTO bodies (seq, payload, spec) VALUES (new.seq, new.payload, new.spec);
END;
-- ask
INSERT INTO plain_arrival VALUES ({plain_parameters})
