-- What is known of a worker's death: how long earlier watchers saw its beat stand still, and whether a suspect ran on it
-- when it was buried.
ALTER TABLE {schema}.workers ADD COLUMN watched text;  -- [JSON]: beats, looks, seconds
ALTER TABLE {schema}.workers ADD COLUMN beside_suspect boolean NOT NULL DEFAULT false;
