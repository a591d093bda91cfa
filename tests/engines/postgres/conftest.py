"""A PostgreSQL engine on a schema of the test's own, and connections beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.engines.postgres.store.connection import Connection, check_schema
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import postgres_engine, schema_of

Connect = Callable[[], Awaitable[Connection]]


@pytest.fixture
def schema(tmp_path: Path) -> str:
    """The schema's name as statements spell it."""
    return check_schema(schema_of(tmp_path))


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    host, rules = Host(dice=SystemDice(7)), Rules()
    lab = Lab(lambda: postgres_engine(rules, host, tmp_path), host, rules)
    await lab.engine.open()
    yield lab
    await lab.engine.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections of the test's own to the same database."""
    opened: list[Connection] = []

    async def open_one() -> Connection:
        opened.append(await asyncpg.connect(shared().url()))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.terminate()
