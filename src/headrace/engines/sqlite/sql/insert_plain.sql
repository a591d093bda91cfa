-- What insert_one.sql does, for a job that is in line at once, whose order number is known, and which is in the lists of
-- blocks by that: nothing is looked up but whether the number is still the next, and the books are left alone. Fails if
-- it is not, as if the id is stored already: another job has it, or had it, and then it is counted.
-- The values of columns.PLAIN
CREATE TEMP VIEW plain_arrival AS SELECT NULL AS seq, NULL AS collected, {plain_nulls};
CREATE TEMP TRIGGER arriving_plainly INSTEAD OF INSERT ON plain_arrival BEGIN
  SELECT raise(ABORT, 'another number is the next') FROM books
  WHERE counted >= new.seq OR collected <> new.collected;
  INSERT INTO jobs (seq, {plain_columns}, rev, epoch, unstarted_losses, unnamed)
  VALUES (new.seq, {plain_values}, 1, 0, 0, 0);
  INSERT INTO bodies (seq, payload, spec) VALUES (new.seq, new.payload, new.spec);
END;
-- ask
INSERT INTO plain_arrival VALUES ({plain_parameters})
