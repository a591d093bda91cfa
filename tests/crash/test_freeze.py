"""The store stands still for longer than a lease: nobody is buried, nothing is charged, everything goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.core.status import Outcome, Status
from headrace.engines.postgres.store import pool
from tests.crash.app import PATIENCE, app, waits_for, work
from tests.support.crew import crew
from tests.support.invariants import check_store
from tests.support.servers.postgres import Server
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

BEAT, LEASE, FROZEN = 3.0, 9.0, 13.0
"""Seconds: a third of what everybody has, as is the time for which an answer is waited for (``hurried``). What stands
still does so for longer than a lease, and than anybody waits for an answer."""

_HOLD_THE_LOCK = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(30000)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


class Store(NamedTuple):
    """A store that can be made to stand still."""

    url: str
    frozen: Callable[[], AbstractAsyncContextManager[None]]


def locked_file(folder: Path) -> Iterator[Store]:
    """A file that somebody keeps locked."""
    file = folder / "jobs.db"

    @asynccontextmanager
    async def frozen() -> AsyncIterator[None]:
        holder = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _HOLD_THE_LOCK, str(file), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert holder.stdout is not None
            await holder.stdout.readline()
            yield
        finally:
            await holder.communicate(b"")

    yield Store(f"sqlite:///{file}", frozen)


def stopped_server(folder: Path) -> Iterator[Store]:
    """A server all of whose processes stand still."""
    server = Server.start(folder)

    @asynccontextmanager
    async def frozen() -> AsyncIterator[None]:
        await asyncio.to_thread(server.freeze)
        try:
            yield
        finally:
            await asyncio.to_thread(server.thaw)

    yield Store(server.url(server.create_database()), frozen)
    server.stop()


STORES = [
    pytest.param(make, id=kind, marks=pytest.mark.xdist_group(f"freeze {kind}"))
    for kind, make in {"sqlite": locked_file, "postgres": stopped_server}.items()
]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store."""
    make: Callable[[Path], Iterator[Store]] = request.param
    yield from make(tmp_path)


async def test_a_store_frozen_for_longer_than_a_lease_buries_nobody_and_charges_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, note = tmp_path / "go", tmp_path / "runs"
    monkeypatch.setattr(pool, "_STATEMENT_TIMEOUT_SECONDS", PATIENCE)
    hired = crew(store.url, tmp_path, "tests.crash.hurried:app", beat=BEAT, lease=LEASE)
    with app.override(url=store.url), hired as workers:
        async with app:
            for _ in range(2):
                workers.hire("--concurrency", "10")
            await until(_both_beat, within=90)  # all is begun that a worker begins with
            names = {row.info.id for row in await app.workers.list()}
            running = [await waits_for.submit(str(gate), str(note)) for _ in range(6)]
            await until(lambda: note.exists() and len(note.read_text().splitlines()) == 6, within=90)
            others = await work.map([(1.0,) for _ in range(40)])
            await until(_some_done, within=60)
            async with store.frozen():
                late = asyncio.create_task(work.submit(0.0))
                frozen = asyncio.get_running_loop().time()
                gate.touch()  # handlers end while nothing can be stored
                await until(lambda: asyncio.get_running_loop().time() - frozen > FROZEN, within=FROZEN + 10)
            # Accepted once the store moves again, which is before its submitter loses patience.
            for handle in (*running, *others, await late):
                await handle.result(timeout=90)
            # The engine is asked who was buried. The view calls a worker silent until its next beat is in, and cannot
            # know better: what the store has of workers that died during an outage looks the same.
            assert {row.info.id for row in await app.session.engine.workers.list() if row.alive} == names
            await until(_both_are_shown_alive, within=BEAT + 60)
            assert {row.info.id for row in await app.workers.list()} == names
            assert not any("declared dead" in workers.said(member) for member in workers.members)
            await until(_all_ended, within=90)
            histories = await check_store(app.session.engine)
            outcomes = {one.outcome for history in histories.values() for one in history.attempts}
            assert outcomes == {Outcome.COMPLETED}
            assert {(await app.jobs.get(handle.id)).charged for handle in (*running, *others)} == {1}


async def _both_beat() -> bool:
    rows = await app.workers.list()
    return len(rows) == 2 and all(row.beats > 0 for row in rows)


async def _both_are_shown_alive() -> bool:
    return [row.alive for row in await app.workers.list()] == [True, True]


async def _some_done() -> bool:
    return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0) > 0


async def _all_ended() -> bool:
    return (await app.session.engine.records.ledger()).live == 0
