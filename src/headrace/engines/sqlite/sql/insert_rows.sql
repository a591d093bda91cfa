  INSERT INTO jobs (seq, {new_columns}, rev, epoch, unstarted_losses, unnamed)
  SELECT (SELECT last_seq FROM books) + 1 + key, {new_values}, 1, 0, 0, 0 FROM jsonb_each({rows});
  INSERT INTO bodies (seq, payload, spec)
  SELECT (SELECT last_seq FROM books) + 1 + key, {new_payload}, {new_spec} FROM jsonb_each({rows});
  INSERT INTO labels (seq, label)
  SELECT (SELECT last_seq FROM books) + 1 + (value ->> 0), value ->> 1 FROM jsonb_each({labels});
  UPDATE bodies SET request = e.value ->> 1
  FROM jsonb_each({requests}) e WHERE bodies.seq = (SELECT last_seq FROM books) + 1 + (e.value ->> 0);
  UPDATE books SET last_seq = last_seq + {n}, accepted = accepted + {n};
