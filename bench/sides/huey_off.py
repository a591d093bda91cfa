"""huey on SQLite with fsync off: fast, and a power failure may take jobs or the whole file."""

from __future__ import annotations

from bench.sides.huey import Huey

__all__ = ["remaining", "settings", "submit", "work"]

_huey = Huey(fsync=False)
submit, work, remaining, settings = _huey.submit, _huey.work, _huey.remaining, _huey.settings
