-- Workers that are gone: as they were last known, how it was known, and which jobs they held. Only burials and departures
-- write here, and the pruner removes.
CREATE TABLE gone_workers (
  id        BLOB PRIMARY KEY,
  gone_at   INTEGER NOT NULL,
  departure TEXT NOT NULL,    -- {JSON}, core.lifecycle.departure.Departure
  info      TEXT NOT NULL,    -- {JSON}
  beat      TEXT NOT NULL,    -- {JSON}
  beats     INTEGER NOT NULL,
  beat_at   INTEGER NOT NULL,
  holds     INTEGER NOT NULL, -- how many jobs it held
  lost      TEXT NOT NULL     -- [JSON], the ids of the first of them
) STRICT;
CREATE INDEX gone_workers_at ON gone_workers (gone_at, id);
