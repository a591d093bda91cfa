"""The file: its connections and threads, its schema, the other processes that have it open, and whether it changed.

Begin with ``connection`` and ``thread``. May import ``engines.sql``.
"""
