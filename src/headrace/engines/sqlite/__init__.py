"""The SQLite engine: one file, any number of processes on one machine, every acknowledged write on disk."""

from headrace.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
