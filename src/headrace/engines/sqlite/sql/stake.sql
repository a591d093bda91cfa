-- Give customers stakes in subqueues. $1: [[customer, subqueue], …]
INSERT OR IGNORE INTO stakes (customer, subqueue) SELECT value ->> 0, value ->> 1 FROM json_each($1)
