-- What is known of a worker's death: how long earlier watchers saw its beat stand still, and, of its burial,
-- whether a suspect ran on it and whether others died at the same time.
ALTER TABLE workers ADD COLUMN watched TEXT;  -- [JSON]: beats, looks, seconds
ALTER TABLE workers ADD COLUMN beside_suspect INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN mass_death INTEGER NOT NULL DEFAULT 0;
