"""Empty stores in files: migrated once in each test process, and copied from then on.

To make all tables and indexes takes longer than most tests do. A test about a file that is not there yet makes its own.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from pathlib import Path

from headrace.core.defaults import Rules
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host
from tests.support.servers.postgres import apart

__all__ = ["new_store"]


def new_store(file: Path) -> Path:
    """The path of a store that has nothing in it, unless it is there already."""
    try:
        made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # as the engine makes it
    except FileExistsError:
        return file
    with open(made, "wb") as store:
        store.write(_migrated())
    return file


@functools.cache
def _migrated() -> bytes:
    async def migrate(file: Path) -> None:
        engine = SqliteEngine(file, rules=Rules(), host=Host())
        await engine.open()
        await engine.close()

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs.db")
        apart(lambda: asyncio.run(migrate(file)))
        return file.read_bytes()
