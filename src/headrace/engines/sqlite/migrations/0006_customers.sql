-- Keys of jobs with a customer become that customer's own. own_dedup and own_turn are core.customers.dedup_of and turn_of
-- of a spec, as they are stored; own_rate is a rate of a key as that of the customer of a spec.
-- By way of texts that no key has: a key may be called like what another becomes.
UPDATE jobs SET held_key = 'seq ' || seq
WHERE held_key IS NOT NULL AND held_key <> (SELECT own_dedup(b.spec) FROM bodies b WHERE b.seq = jobs.seq);
UPDATE jobs SET held_key = (SELECT own_dedup(b.spec) FROM bodies b WHERE b.seq = jobs.seq)
WHERE held_key IS NOT NULL AND held_key = 'seq ' || seq;

-- Rates of keys: what was spent by all is taken to be spent by each, so that nobody begins too early.
INSERT OR IGNORE INTO spent (name, data, until)
SELECT own_rate(s.name, b.spec), s.data, s.until
FROM spent s CROSS JOIN jobs j ON j.turn_key = s.name ->> 3 AND j.stage < 4 CROSS JOIN bodies b ON b.seq = j.seq
WHERE json_array_length(s.name) = 4 AND s.name ->> 2 = b.spec ->> 'task' AND b.spec ->> 'customer' IS NOT NULL;

-- Ended jobs, too: a retry brings them back with the key that they have. First the heads, which remember whose turn it was.
INSERT OR IGNORE INTO heads (task, key, line, last)
SELECT DISTINCT h.task, own_turn(b.spec), h.line, h.last
FROM heads h CROSS JOIN jobs j ON j.line = h.line AND j.turn_key = h.key CROSS JOIN bodies b ON b.seq = j.seq
WHERE j.turn_key <> own_turn(b.spec);
UPDATE jobs SET turn_key = (SELECT own_turn(b.spec) FROM bodies b WHERE b.seq = jobs.seq)
WHERE turn_key IS NOT NULL AND turn_key <> (SELECT own_turn(b.spec) FROM bodies b WHERE b.seq = jobs.seq);
UPDATE heads SET (rank, arrived_at, seq) = (
  SELECT rank, arrived_at, seq FROM jobs WHERE stage = -1 AND line = heads.line AND turn_key = heads.key
  ORDER BY rank, arrived_at, seq LIMIT 1);
