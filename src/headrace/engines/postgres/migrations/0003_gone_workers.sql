-- Workers that are gone: as they were last known, how it was known, and which jobs they held. Only burials and departures
-- write here, and the pruner removes.
CREATE TABLE {schema}.gone_workers (
  id        uuid PRIMARY KEY,
  gone_at   bigint NOT NULL,
  departure text NOT NULL,    -- {JSON}, core.lifecycle.departure.Departure
  info      text NOT NULL,    -- {JSON}
  beat      text NOT NULL,    -- {JSON}
  beats     bigint NOT NULL,
  beat_at   bigint NOT NULL,
  holds     bigint NOT NULL,  -- how many jobs it held
  lost      text NOT NULL     -- [JSON], the ids of the first of them
);
CREATE INDEX gone_workers_at ON {schema}.gone_workers (gone_at, id);
