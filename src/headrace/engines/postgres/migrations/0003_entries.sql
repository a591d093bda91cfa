-- What runs add to their jobs: items of streams, lines of logs, results of steps. Apart from the jobs, because it is
-- much, and read by nobody but those who follow one job; the key is the order in which that is done.
CREATE TABLE {schema}.entries (
  seq     bigint NOT NULL,
  at      bigint NOT NULL,
  attempt integer NOT NULL,
  number  integer NOT NULL,
  kind    text NOT NULL,
  name    text,
  data    text NOT NULL,    -- JSON
  PRIMARY KEY (seq, kind, attempt, number)
);
