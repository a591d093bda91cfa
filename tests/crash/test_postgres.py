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

from headrace import JobHandle
from headrace.core.query import Filter
from headrace.core.status import Outcome, Status
from headrace.errors import Unavailable
from tests.crash.app import app, nothing, waits_for, work
from tests.support.crew import Crew, crew
from tests.support.invariants import check_store
from tests.support.seed import repeats
from tests.support.servers.postgres import Server
from tests.support.servers.proxy import Proxy
from tests.support.until import until

pytestmark = [pytest.mark.timeout(480), pytest.mark.xdist_group("crash server")]

LONG = 16.0
"""Seconds of a lease half of which is left to a busy machine."""


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
        self._stopped = False
        self._tasks = [asyncio.create_task(self._submit(at)) for at in range(count)]

    async def _submit(self, at: int) -> None:
        dice = random.Random(at)
        while not self._stopped:
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
        """Submit no more: what was begun is answered before this returns, so that nothing is stored afterwards."""
        self._stopped = True
        await asyncio.gather(*self._tasks)


async def completed() -> int:
    return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0)


async def nothing_is_left() -> bool:
    statuses = (await app.stats.counts()).statuses
    return set(statuses) == {Status.COMPLETED}


async def _at_work(count: int) -> bool:
    """Whether so many have done with starting: what breaks down before is for those who started them to see."""
    rows = [row for row in await app.workers.list() if row.alive]
    return len(rows) == count and all(row.beats > 0 for row in rows)


async def settle(submitters: Submitters, workers: Crew) -> None:
    """Everything acknowledged completes, each job once, by workers that nobody had to start again."""
    await until(nothing_is_left, within=180, what="every job completed")
    assert all(member.poll() is None for member in workers.members)
    ids = submitters.acknowledged
    for start in range(0, len(ids), 1000):
        for job in await app.session.engine.jobs.get(ids[start : start + 1000]):
            assert job is not None
            assert job.status is Status.COMPLETED
    histories = await check_store(app.session.engine)
    assert set(ids) <= set(histories)


async def test_a_server_killed_under_load_loses_nothing_that_was_acknowledged(server: Server, tmp_path: Path) -> None:
    url = server.url(server.create_database())
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            for _ in range(3):
                workers.hire("--concurrency", "20")
            await until(partial(_at_work, 3), within=120)
            submitters = Submitters()
            for _ in range(repeats(3)):
                goal = await completed() + 50
                await submitters.until_more(100)
                await until(partial(_more_than, goal), within=120, what="50 more completed")
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
            await until(partial(_at_work, 3), within=120)
            submitters = Submitters()
            await submitters.until_more(50)
            cut, rounds, enough = 0, 0, repeats(40, 10)
            while cut < enough or rounds < enough:  # there may be none to cut while all wait before they connect again
                assert rounds < 400, f"only {cut} were cut (seed {seed})"
                await asyncio.sleep(dice.uniform(0.02, 0.2))
                if dice.random() < 0.2:
                    cut += await asyncio.to_thread(server.terminate)
                else:
                    cut += await asyncio.to_thread(_cut_one, server)
                rounds += 1
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
    # A lease as everybody has it: on a busy machine eight processes may have to wait for one another.
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            await app.queues.pause("default")
            for _ in range(50):
                await nothing.map([()] * 1000)
            for _ in range(8):
                workers.hire("--concurrency", "20")
            await until(partial(_at_work, 8), within=120)
            await app.queues.resume("default")
            await until(lambda: _more_than(49_999), within=240, what="50,000 jobs completed")
            ledger = await app.session.engine.records.ledger()
            assert (ledger.accepted, ledger.live, ledger.ended, ledger.unaccounted) == (50_000, 0, 50_000, 0)
            # One attempt of each, the completed one, is kept with the job; none is kept apart, as all others would be.
            # Some may have been given away more than once: who cannot begin what it has claimed ahead hands it back.
            [row] = server.execute("SELECT status, count(*), count(number) FROM headrace.jobs GROUP BY 1", database)
            assert row == ("completed", 50_000, 50_000)
            assert server.execute("SELECT count(*) FROM headrace.attempts", database) == [(0,)]
            [(seen,)] = server.execute("SELECT count(DISTINCT worker) FROM headrace.jobs", database)
            assert seen > 1
            page = await app.session.engine.records.find(Filter(), app.host.clock.now(), 2000)
            for job in page.items:
                [attempt] = (await app.session.engine.records.history(job.id)).attempts
                assert (attempt.number, attempt.count, attempt.outcome) == (1, 1, Outcome.COMPLETED)


async def test_a_worker_whose_connections_fall_silent_goes_on_with_others_and_is_not_buried(
    server: Server, tmp_path: Path
) -> None:
    """Nothing arrives any more and nobody is told, as when a firewall forgets; the server itself is well."""
    direct, gate, note = server.url(server.create_database()), tmp_path / "go", tmp_path / "runs"
    async with Proxy(direct) as proxy:
        there = tmp_path / "there"
        there.mkdir()
        with (
            app.override(url=direct),
            # It is heard again after half a lease and two beats at most; the rest is for a busy machine.
            crew(proxy.url, tmp_path, "tests.crash.hurried:app", beat=1.0, lease=LONG) as workers,
            crew(direct, there, beat=1.0, lease=LONG) as others,
        ):
            async with app:
                workers.hire("--queues", "default")
                handle = await waits_for.submit(str(gate), str(note))
                await until(partial(_has_status, handle, Status.RUNNING), within=90)
                others.hire("--queues", "other")  # sweeps when the first no longer does
                await until(partial(_at_work, 2), within=90)
                [name] = {row.info.id for row in await app.workers.list() if row.holds}
                heard = await _beats_of(name)
                proxy.silence()
                await until(partial(_beats_on, name, heard + 3), within=60, what="three beats by another way")
                gate.touch()
                assert await handle.result(timeout=60) == 1
                assert {row.info.id for row in await app.session.engine.workers.list() if row.alive} >= {name}
                assert not any("declared dead" in workers.said(member) for member in workers.members)
                histories = await check_store(app.session.engine)
                assert [one.outcome for one in histories[handle.id].attempts] == [Outcome.COMPLETED]


async def _has_status(handle: JobHandle[int], status: Status) -> bool:
    return (await handle.refresh()).status is status


async def _beats_of(worker: UUID) -> int:
    # As the engine has it: the view calls a worker silent until its next beat is in.
    [beats] = [row.beats for row in await app.session.engine.workers.list() if row.info.id == worker and row.alive]
    return beats


async def _beats_on(worker: UUID, count: int) -> bool:
    return await _beats_of(worker) >= count
