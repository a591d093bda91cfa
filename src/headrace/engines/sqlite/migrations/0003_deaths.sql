-- What is known of a worker's death: how long earlier watchers saw its beat stand still, and whether a suspect ran on it
-- when it was buried.
ALTER TABLE workers ADD COLUMN watched TEXT;  -- [JSON]: beats, looks, seconds
ALTER TABLE workers ADD COLUMN beside_suspect INTEGER NOT NULL DEFAULT 0;
