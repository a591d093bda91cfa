"""What the SQL engines share: how rows are written and read, and statements that differ only in dialect.

Begin with ``columns`` (how a job becomes a row) and ``encoding``. May import ``runtime`` and below, and no engine.
"""
