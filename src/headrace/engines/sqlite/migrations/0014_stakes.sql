-- The lines in which customers have live jobs, or had: by these their pairs of task and requirements are counted. Whoever
-- inserts a customer's job makes sure that its stake is there. Jobs that are stored already count from the next one on.
CREATE TABLE stakes (
  customer TEXT NOT NULL,
  line     INTEGER NOT NULL,
  PRIMARY KEY (customer, line)
) STRICT, WITHOUT ROWID;
