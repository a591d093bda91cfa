"""What an idle worker costs, counted in statements by the server itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import App
from headrace.runtime.host import Host
from tests.support.servers.postgres import Server
from tests.support.until import until

SPEED = 6.0
MINUTE = 60.0


class FastClock:
    """Goes faster than others."""

    def __init__(self) -> None:
        self._began, self._real = datetime.now(UTC), time.monotonic()

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (time.monotonic() - self._real) * SPEED


class FastHost(Host):
    """A machine on which time goes faster: whatever a worker waits for there, it waits less."""

    def __init__(self) -> None:
        super().__init__(FastClock())

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / SPEED)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        return await super().wait(event, None if seconds is None else seconds / SPEED)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server.start(tmp_path, shared_preload_libraries="pg_stat_statements")
    server.execute("CREATE EXTENSION pg_stat_statements")
    yield server
    server.stop()


def statements(server: Server, database: str) -> dict[str, int]:
    """How often each statement was run in a database."""
    rows = server.execute(
        "SELECT s.query, sum(s.calls)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
        f" WHERE d.datname = '{database}' GROUP BY s.query"
    )
    return dict(rows)


def beats_in(made: dict[str, int]) -> int:
    """How many of them are beats."""
    return sum(count for query, count in made.items() if "beaten AS (" in query)


@pytest.mark.timeout(240)
async def test_an_idle_worker_makes_fewer_than_sixty_queries_a_minute(server: Server) -> None:
    database, host = server.create_database(), FastHost()
    with App(server.url(database)).override(host=host) as app:
        app.task(idle)
        async with app, app.worker() as worker:
            await until(lambda: worker.healthy, within=90)
            await host.sleep(65)  # it looks less and less often while there is nothing, and has done all duties once
            began, before = host.clock.monotonic(), statements(server, database)
            await host.sleep(MINUTE)
            # A minute of its time has passed, or more if the machine is busy, and it lives.
            await until(lambda: beats_in(statements(server, database)) >= beats_in(before) + 5)
            after, minutes = statements(server, database), (host.clock.monotonic() - began) / MINUTE
    made = {query: count - before.get(query, 0) for query, count in after.items() if count > before.get(query, 0)}
    assert 5 <= beats_in(made) <= 7 * minutes, made
    assert sum(made.values()) < 60 * minutes, made


async def idle() -> None:
    """What a worker needs to have: a task."""
