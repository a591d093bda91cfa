-- Who changed settings, and when: the newest acts.
CREATE TABLE audit (
  id   INTEGER PRIMARY KEY,
  key  TEXT NOT NULL,
  data TEXT NOT NULL      -- {JSON}
) STRICT;
