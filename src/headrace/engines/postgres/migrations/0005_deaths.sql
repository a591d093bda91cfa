-- What is known of a worker's death: how long earlier watchers saw its beat stand still, and, of its burial,
-- whether a suspect ran on it and whether others died at the same time.
ALTER TABLE {schema}.workers ADD COLUMN watched text;  -- [JSON]: beats, looks, seconds
ALTER TABLE {schema}.workers ADD COLUMN beside_suspect boolean NOT NULL DEFAULT false;
ALTER TABLE {schema}.workers ADD COLUMN mass_death boolean NOT NULL DEFAULT false;
