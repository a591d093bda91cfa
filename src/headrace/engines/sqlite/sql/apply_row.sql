  -- An end is noted only where others wait for the job.
  INSERT INTO notes (kind, seq, cursor) SELECT 'ended', seq, 0 FROM jobs WHERE {new.ended} AND seq = {new.seq} AND tied;
  UPDATE jobs SET {set}, unnamed = iif(worker IS {new.worker} AND epoch = {new.epoch}, unnamed, 0)
  WHERE seq = {new.seq};
  INSERT INTO ends (seq, result, error)
  SELECT {new.seq}, {new.result}, {new.error} WHERE {new.result} IS NOT NULL OR {new.error} IS NOT NULL
  ON CONFLICT (seq) DO UPDATE SET result = excluded.result, error = excluded.error;
  -- A streak of equal attempts shares one record, with their count and the end of the last one.
  INSERT INTO attempts (seq, number, data) SELECT {new.seq}, {new.attempt_number}, {new.attempt}
  WHERE {new.attempt_number} IS NOT NULL
  ON CONFLICT (seq, number) DO UPDATE SET data = json_set(
    data, '$[0]', (data ->> 0) + (excluded.data ->> 0), '$[1]', excluded.data ->> 1);
  INSERT INTO events (seq, data) SELECT {new.seq}, {new.event} WHERE {new.event} IS NOT NULL;
