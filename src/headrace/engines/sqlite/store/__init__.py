"""The file: its connections and threads, its schema, who else has it open, and whether it changed.

Begin with ``connection`` and ``thread``. May import ``engines.sql``.
"""
