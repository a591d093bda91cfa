-- Give a job the payload of another submit, and find it by the id of that one as well. $1: [seq, id, payload, label]
UPDATE bodies SET payload = $1 ->> 2 WHERE seq = $1 ->> 0;
INSERT INTO labels (seq, label) SELECT $1 ->> 0, $1 ->> 3 WHERE true ON CONFLICT DO NOTHING;
