-- A job that is stored alone leaves the books alone: that is one page less to write. They say up to which order number
-- they have counted, and each higher one is a job that was accepted since.
ALTER TABLE books RENAME COLUMN last_seq TO counted;

-- The highest order number given.
CREATE VIEW numbers AS SELECT max(counted, coalesce((SELECT max(seq) FROM jobs), 0)) AS last FROM books;

-- Before a job goes that is not counted yet.
CREATE TRIGGER counted_first BEFORE DELETE ON jobs WHEN old.seq > (SELECT counted FROM books) BEGIN
  UPDATE books SET accepted = accepted + n.last - counted, counted = n.last FROM numbers AS n;
END;
