-- Store a batch of new jobs in one step; fails as a whole when an id or a key is here already.
-- rows: [[id, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, held_key, payload, spec,
-- turn_key], …]; labels: [[index of the row, label], …]
CREATE TEMP VIEW arrival AS SELECT NULL AS rows, NULL AS labels, NULL AS n, NULL AS collected;
CREATE TEMP TRIGGER arriving INSTEAD OF INSERT ON arrival BEGIN
  -- The lines in the rows were interned earlier; had any been collected since, they would mean nothing.
  SELECT raise(ABORT, 'lines were collected') FROM books WHERE collected <> new.collected;
  INSERT INTO jobs (
    seq, id, line, status, stage, rank, arrived_at, available_at, updated_at, act_by, state, held_key, turn_key,
    rev, epoch, unstarted_losses, unnamed)
  SELECT
    (SELECT last_seq FROM books) + 1 + key, unhex(value ->> 0, '-'), value ->> 1, value ->> 2, value ->> 3,
    value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 13,
    1, 0, 0, 0
  FROM jsonb_each(new.rows);
  INSERT INTO bodies (seq, payload, spec)
  SELECT (SELECT last_seq FROM books) + 1 + key, value ->> 11, value ->> 12 FROM jsonb_each(new.rows);
  INSERT INTO labels (seq, label)
  SELECT (SELECT last_seq FROM books) + 1 + (value ->> 0), value ->> 1 FROM jsonb_each(new.labels);
  UPDATE books SET last_seq = last_seq + new.n, accepted = accepted + new.n;
END;
-- ask
INSERT INTO arrival VALUES (?1, ?2, ?3, ?4) RETURNING (SELECT last_seq FROM books)
