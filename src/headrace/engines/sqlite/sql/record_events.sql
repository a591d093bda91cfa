-- Store events of jobs. $1: [[order number, event], …]
INSERT INTO events (seq, data) SELECT value ->> 0, value ->> 1 FROM json_each($1)
