-- Keys of jobs with a customer become that customer's own, as core.customers.own says. Whoever writes jobs waits for this.
LOCK TABLE {schema}.jobs IN SHARE ROW EXCLUSIVE MODE;

CREATE FUNCTION {schema}.own_key(customer text, key text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN customer IS NULL THEN CASE WHEN left(key, 1) = chr(31) THEN chr(31) || key ELSE key END
    WHEN length(customer || length(customer) || key) + 2 <= 512 THEN chr(31) || length(customer) || ':' || customer || key
    ELSE chr(31) || '#' || encode(sha256(convert_to(
      chr(31) || length(customer) || ':' || customer || key, 'UTF8')), 'hex') END
$$;
CREATE FUNCTION {schema}.own_dedup(spec json) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN length(k) <= 500 THEN k ELSE encode(sha256(convert_to(k, 'UTF8')), 'hex') END
  FROM (SELECT '[' || to_json(spec ->> 'task') || ','
    || to_json({schema}.own_key(spec ->> 'customer', spec ->> 'dedup')) || ']' AS k) t
$$;

-- By way of texts that no key has: a key may be called like what another becomes.
UPDATE {schema}.jobs j SET held_key = 'seq ' || j.seq
FROM {schema}.bodies b
WHERE j.held_key IS NOT NULL AND b.id = j.id AND j.held_key <> {schema}.own_dedup(b.spec::json);
UPDATE {schema}.jobs j SET held_key = {schema}.own_dedup(b.spec::json)
FROM {schema}.bodies b
WHERE j.held_key IS NOT NULL AND b.id = j.id AND j.held_key = 'seq ' || j.seq;

-- Rates of keys: what was spent by all is taken to be spent by each, so that nobody begins too early.
INSERT INTO {schema}.spent (name, data, until)
SELECT DISTINCT '["rate",' || to_json(s.name::json ->> 1) || ',' || to_json(k.task) || ','
  || to_json({schema}.own_key(k.customer, k.key)) || ']', s.data, s.until
FROM {schema}.spent s JOIN (
  SELECT DISTINCT b.spec::json ->> 'task' AS task, b.spec::json ->> 'customer' AS customer, j.turn_key AS key
  FROM {schema}.jobs j JOIN {schema}.bodies b ON b.id = j.id
  WHERE j.turn_key IS NOT NULL AND j.stage < 4 AND b.spec::json ->> 'customer' IS NOT NULL
) k ON s.name::json ->> 2 = k.task AND s.name::json ->> 3 = k.key
ON CONFLICT DO NOTHING;

-- Ended jobs, too: a retry brings them back with the key that they have. First the heads, which remember whose turn it was.
INSERT INTO {schema}.heads (task, key, line, rank, at, seq, last)
SELECT DISTINCT h.task, {schema}.own_key(b.spec::json ->> 'customer', h.key), h.line, NULL::smallint, h.last, 0, h.last
FROM {schema}.heads h JOIN {schema}.jobs j ON j.line = h.line AND j.turn_key = h.key
  JOIN {schema}.bodies b ON b.id = j.id
WHERE j.turn_key <> {schema}.own_key(b.spec::json ->> 'customer', j.turn_key)
ON CONFLICT DO NOTHING;
UPDATE {schema}.jobs j SET turn_key = {schema}.own_key(b.spec::json ->> 'customer', j.turn_key)
FROM {schema}.bodies b
WHERE j.turn_key IS NOT NULL AND b.id = j.id
  AND j.turn_key <> {schema}.own_key(b.spec::json ->> 'customer', j.turn_key);
-- Heads may be in front of the jobs of their keys, never behind: so who has left need not be known, who came must be.
UPDATE {schema}.arrivals a SET key = j.turn_key FROM {schema}.jobs j WHERE j.seq = a.seq AND a.key <> j.turn_key;
INSERT INTO {schema}.arrivals (line, key, rank, arrived_at, seq)
SELECT j.line, j.turn_key, j.rank, min(j.arrived_at), min(j.seq)
FROM {schema}.jobs j WHERE j.stage = -1 AND left(j.turn_key, 1) = chr(31) GROUP BY 1, 2, 3;

DROP FUNCTION {schema}.own_dedup(json);
DROP FUNCTION {schema}.own_key(text, text);
