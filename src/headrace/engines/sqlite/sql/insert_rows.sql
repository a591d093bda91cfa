  {count_jobs};
  INSERT INTO jobs (seq, {new_columns}, rev, epoch, unstarted_losses, unnamed)
  SELECT (SELECT last_seq FROM books) + 1 + key, {new_values}, 1, 0, 0, 0 FROM jsonb_each({rows});
  INSERT INTO bodies (seq, payload, spec)
  SELECT (SELECT last_seq FROM books) + 1 + key, {new_payload}, {new_spec} FROM jsonb_each({rows});
  INSERT INTO labels (seq, label)
  SELECT (SELECT last_seq FROM books) + 1 + (value ->> 0), value ->> 1 FROM jsonb_each({labels});
  UPDATE bodies SET request = e.value ->> 1
  FROM jsonb_each({requests}) e WHERE bodies.seq = (SELECT last_seq FROM books) + 1 + (e.value ->> 0);
  INSERT OR IGNORE INTO subqueue_blocks (subqueue, block)
  SELECT e.value, o.last >> 10 FROM jsonb_each({lists}, '$[0]') e CROSS JOIN (
    SELECT last_seq + 1 AS last FROM books UNION ALL SELECT last_seq + {n} FROM books) o;
  INSERT OR IGNORE INTO time_blocks (block, bucket)
  SELECT o.last >> 12, e.value FROM jsonb_each({lists}, '$[1]') e CROSS JOIN (
    SELECT last_seq + 1 AS last FROM books UNION ALL SELECT last_seq + {n} FROM books) o;
  UPDATE books SET last_seq = last_seq + {n}, accepted = accepted + {n};
