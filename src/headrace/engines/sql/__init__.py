"""What the SQL engines do alike: how rows are written and read, and statements that differ in nothing but dialect."""
