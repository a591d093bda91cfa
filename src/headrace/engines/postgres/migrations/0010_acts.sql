-- Who changed settings, and when: the newest acts.
CREATE TABLE {schema}.audit (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key  text NOT NULL,
  data text NOT NULL      -- {JSON}
);
