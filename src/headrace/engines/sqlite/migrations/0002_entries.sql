-- What runs add to their jobs: items of streams, lines of logs, results of steps. Apart from the jobs, because it is
-- much, and read by nobody but those who follow one job; the key is the order in which that is done.
CREATE TABLE entries (
  seq     INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  number  INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  name    TEXT,
  data    TEXT NOT NULL,    -- JSON
  PRIMARY KEY (seq, kind, attempt, number)
) STRICT, WITHOUT ROWID;
