"""Where tests keep their files: in memory if there is room, since a store waits for the disk at each commit.

Tests on SQLite spent most of their time with that. What a test has written is removed when it has passed, so a run
needs as much room as the few tests that are under way. Its empty folder stays, so no later test gets its path.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
"""A file system in memory, on most Linux systems; in containers often one of 64 MB."""

ROOM = 2 << 30
"""The bytes that must be free there."""

CHOSEN = "PYTEST_DEBUG_TEMPROOT"
"""The environment variable by which pytest is told where to make the folders of tests."""


def choose(memory: Path = MEMORY) -> None:
    """Have pytest make the folders of tests in memory, unless somebody chose a place."""
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= ROOM:
        os.environ.setdefault(CHOSEN, str(memory))


def empty(place: Path) -> None:
    """Remove all that is in a folder, as far as that can be done."""
    for inside in place.iterdir() if place.is_dir() else ():
        if inside.is_dir() and not inside.is_symlink():
            shutil.rmtree(inside, ignore_errors=True)
        else:
            inside.unlink(missing_ok=True)
