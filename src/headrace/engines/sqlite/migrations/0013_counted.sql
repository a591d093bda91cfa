-- A job that is stored alone leaves the books alone: that is one page less to write. From now on last_seq is the order
-- number up to which the books have counted. Each higher one is a job that was accepted since; numbers have no gaps.

-- Count them before one of them is deleted, or its number would be given again.
CREATE TRIGGER counted_first BEFORE DELETE ON jobs WHEN old.seq > (SELECT last_seq FROM books) BEGIN
  UPDATE books SET accepted = accepted + (SELECT max(seq) FROM jobs) - last_seq, last_seq = (SELECT max(seq) FROM jobs);
END;
