-- The attempt that completed a job: nothing comes after it, so it is kept on the row of the job, with its worker, and has
-- no row of its own. Those from before have one, and no number here.
ALTER TABLE jobs ADD COLUMN number INTEGER;
ALTER TABLE jobs ADD COLUMN took REAL;  -- the seconds that its handler took; null: nobody measured
