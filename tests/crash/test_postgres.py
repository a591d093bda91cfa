"""The server is killed, its connections are cut, eight processes drain it: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from headrace.core.status import Status
from headrace.errors import Unavailable
from tests.crash.app import app, nothing, work
from tests.support.crew import Crew, crew
from tests.support.invariants import check_store
from tests.support.postgres import Server
from tests.support.until import until

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("crash server")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that may be killed."""
    server = Server.start(tmp_path)
    yield server
    server.stop()


class Submitters:
    """Several who submit one job after another, and remember which were acknowledged."""

    def __init__(self, count: int = 5) -> None:
        self.acknowledged: list[UUID] = []
        self.failed = 0
        self._tasks = [asyncio.create_task(self._submit(at)) for at in range(count)]

    async def _submit(self, at: int) -> None:
        dice = random.Random(at)
        while True:
            with suppress(Unavailable):
                # One by one and several at once, with and without a key.
                keyed = work.options(dedup=f"{at}:{len(self.acknowledged)}:{dice.random()}")
                handles = [await work.submit(0.01), await keyed.submit(0.01), *await work.map([(0.01,)] * 5)]
                self.acknowledged += [handle.id for handle in handles]
            await asyncio.sleep(dice.uniform(0.0, 0.05))

    async def until_more(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        goal = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= goal, within=90, what=f"{count} more acknowledged")

    async def stop(self) -> None:
        """Submit no more."""
        for task in self._tasks:
            task.cancel()
        for answer in await asyncio.gather(*self._tasks, return_exceptions=True):
            assert isinstance(answer, asyncio.CancelledError), answer


async def completed() -> int:
    return (await app.stats()).statuses.get(Status.COMPLETED, 0)


async def nothing_is_left() -> bool:
    statuses = (await app.stats()).statuses
    return set(statuses) == {Status.COMPLETED}


async def settle(submitters: Submitters, workers: Crew) -> None:
    """Everything acknowledged completes, each job once, by workers that nobody had to start again."""
    await until(nothing_is_left, within=120, what="every job completed")
    assert all(member.poll() is None for member in workers.members)
    ids = submitters.acknowledged
    for start in range(0, len(ids), 1000):
        for job in await app.engine.get(ids[start : start + 1000]):
            assert job is not None
            assert job.status is Status.COMPLETED
    histories = await check_store(app.engine)
    assert set(ids) <= set(histories)


async def test_a_server_killed_under_load_loses_nothing_that_was_acknowledged(server: Server, tmp_path: Path) -> None:
    url = server.url(server.create_database())
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            for _ in range(3):
                workers.hire("--concurrency", "20")
            submitters = Submitters()
            for _ in range(3):
                goal = await completed() + 50
                await submitters.until_more(100)
                await until(partial(_more_than, goal), within=60, what="50 more completed")
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.restart)
            await submitters.until_more(100)
            await submitters.stop()
            await settle(submitters, workers)


async def _more_than(count: int) -> bool:
    return await completed() > count


async def test_connections_cut_at_random_lose_nothing(server: Server, tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    dice = random.Random(seed)
    url = server.url(server.create_database())
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            for _ in range(3):
                workers.hire("--concurrency", "20")
            submitters = Submitters()
            await submitters.until_more(50)
            cut = 0
            for _ in range(40):
                await asyncio.sleep(dice.uniform(0.02, 0.2))
                if dice.random() < 0.2:
                    cut += await asyncio.to_thread(server.terminate)
                else:
                    cut += await asyncio.to_thread(_cut_one, server)
            assert cut >= 40, f"seed {seed}"
            await submitters.until_more(50)
            await submitters.stop()
            await settle(submitters, workers)


def _cut_one(server: Server) -> int:
    """End one connection of headrace's, whichever, in the middle of what it does if it does something."""
    rows = server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headrace'"
        " ORDER BY state = 'active' DESC, random() LIMIT 1"
    )
    return len(rows)


async def test_eight_processes_drain_fifty_thousand_jobs_each_finished_once(server: Server, tmp_path: Path) -> None:
    database = server.create_database()
    url = server.url(database)
    # Leases as everybody has them: on a busy machine eight processes may have to wait for one another.
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            await app.pause_queue("default")
            for _ in range(50):
                await nothing.map([()] * 1000)
            for _ in range(8):
                workers.hire("--concurrency", "20")
            await until(_eight_are_here, within=60)
            await app.resume_queue("default")
            await until(lambda: _more_than(49_999), within=240, what="50,000 jobs completed")
            ledger = await app.engine.ledger()
            assert (ledger.accepted, ledger.live, ledger.ended, ledger.unaccounted) == (50_000, 0, 50_000, 0)
            rows = server.execute(
                "SELECT status, count(*), count(DISTINCT seq) FROM headrace.jobs GROUP BY status", database
            )
            assert rows == [("completed", 50_000, 50_000)]
            rows = server.execute(
                "SELECT number, folded, data::json ->> 0, data::json ->> 3, count(*), count(DISTINCT seq)"
                " FROM headrace.attempts GROUP BY 1, 2, 3, 4",
                database,
            )
            assert rows == [(1, 0, "1", "completed", 50_000, 50_000)]
            [(shares,)] = server.execute("SELECT count(DISTINCT data::json ->> 4) FROM headrace.attempts", database)
            assert shares > 1


async def _eight_are_here() -> bool:
    return len(await app.workers()) == 8
