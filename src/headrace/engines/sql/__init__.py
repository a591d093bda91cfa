"""What the SQL engines do alike: how rows are written and read, and statements that differ only in dialect."""
