"""The SQLite engine: one file, any number of processes on one machine, every acknowledged write on disk.

Begin with ``engine``. There is a module or package per role, and a file in the folder ``sql`` per statement. May import
``engines.sql``, ``runtime`` and below.
"""

from headrace.engines.sqlite.engine import MODES, SqliteEngine

__all__ = ["MODES", "SqliteEngine"]
