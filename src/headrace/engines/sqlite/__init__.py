"""The SQLite engine: one file, any number of processes on one machine, every acknowledged write on disk."""

from headrace.engines.sqlite.engine import MODES, SqliteEngine

__all__ = ["MODES", "SqliteEngine"]
