"""A SQLite engine on a file of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from tests.support.sqlite_files import new_store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def lab(file: Path) -> AsyncIterator[Lab]:
    host, rules = Host(dice=SystemDice(7)), Rules()
    lab = Lab(lambda: SqliteEngine(new_store(file), rules=rules, host=host), host, rules)
    await lab.engine.open()
    yield lab
    await lab.engine.close()
