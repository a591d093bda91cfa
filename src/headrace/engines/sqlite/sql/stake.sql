-- Give customers stakes in lines. $1: [[customer, line], …]
INSERT OR IGNORE INTO stakes (customer, line) SELECT value ->> 0, value ->> 1 FROM json_each($1)
