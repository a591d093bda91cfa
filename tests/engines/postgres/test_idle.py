"""What an idle worker costs, counted in statements by the server itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import App
from tests.support.crew import crew
from tests.support.postgres import Server
from tests.support.until import until

MINUTE = 60.0


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


@pytest.mark.timeout(300)
async def test_an_idle_worker_makes_fewer_than_sixty_queries_a_minute(server: Server, tmp_path: Path) -> None:
    database = server.create_database()
    url = server.url(database)
    app = App(url)
    with crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        workers.hire()
        async with app:
            await until(lambda: _alive(app), within=90)
        await asyncio.sleep(15)  # it looks less and less often while there is nothing
        loop = asyncio.get_running_loop()
        began, before = loop.time(), statements(server, database)
        await asyncio.sleep(MINUTE)
        after, minutes = statements(server, database), (loop.time() - began) / MINUTE
    made = {query: count - before.get(query, 0) for query, count in after.items() if count > before.get(query, 0)}
    assert made  # it is alive
    assert sum(made.values()) < 60 * minutes, made


async def _alive(app: App) -> bool:
    return len(await app.workers()) == 1
