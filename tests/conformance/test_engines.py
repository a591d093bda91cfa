"""Every engine that comes with headrace passes the suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.conformance import Suite
from headrace.core.defaults import Rules
from headrace.engine import Engine
from headrace.runtime.host import Host
from tests.support.hubs import Hubs
from tests.support.servers.schemas import postgres_engine
from tests.support.sqlite_files import new_store

pytestmark = pytest.mark.timeout(240)


class TestMemory(Suite):
    durable = False

    def engine(self, rules: Rules, host: Host, place: Path) -> Engine:
        from headrace.engines.memory import MemoryEngine

        return MemoryEngine(rules, host)


class TestSqlite(Suite):
    def engine(self, rules: Rules, host: Host, place: Path) -> Engine:
        from headrace.engines.sqlite import SqliteEngine

        return SqliteEngine(new_store(place / "store.db"), rules=rules, host=host)


class TestPostgres(Suite):
    def engine(self, rules: Rules, host: Host, place: Path) -> Engine:
        return postgres_engine(rules, host, place)


@pytest.fixture(scope="module")
def hubs() -> Iterator[Hubs]:
    hubs = Hubs()
    yield hubs
    hubs.close()


class TestRemote(Suite):
    """Through a hub on a real port, which has the store in its memory."""

    @pytest.fixture(autouse=True)
    def stopped(self, hubs: Hubs) -> Iterator[None]:
        self._hubs = hubs
        yield
        hubs.stop()

    def engine(self, rules: Rules, host: Host, place: Path) -> Engine:
        from headrace.engines.memory import MemoryEngine

        return self._hubs.engine(place, rules, host, lambda: MemoryEngine(rules, Host()))
