"""Worker processes end without a word: the kernel, or the server, says so, and nobody waits for their silence.

Leases are as everybody has them, half a minute, so that what is found before was not found by silence. Who was buried
by what is in the logs.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import psutil  # type: ignore[import-untyped]  # it has no types
import pytest

from headrace import JobHandle
from headrace.core.status import Outcome, Status
from tests.crash.app import app, blocks, deaf, waits_for
from tests.support.crew import crew
from tests.support.invariants import check_store
from tests.support.living import BY_LOOKS, BY_PROOF, are_living, have_beaten, living, quietly, said, the_same_workers
from tests.support.seed import repeats
from tests.support.servers import schemas
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import Server, shared
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]
DUTIES = ("duty:sweeper", "duty:planner", "duty:pruner")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def holders() -> list[UUID | None]:
    """Who has each duty."""
    now = app.host.clock.now()
    return [await app.session.engine.documents.holder(name, now) for name in DUTIES]


def runs(note: Path) -> list[int]:
    """The processes in which it was begun, in order."""
    return [int(line.split()[1]) for line in note.read_text().splitlines()] if note.exists() else []


async def taken_by(pid: int, gate: Path, note: Path) -> JobHandle[int]:
    """A job that this process has begun."""
    while True:
        before, handle = len(runs(note)), await waits_for.submit(str(gate), str(note))
        await until(lambda before=before: len(runs(note)) > before, within=90)  # type: ignore[misc]
        if runs(note)[-1] == pid:
            return handle
        await asyncio.to_thread(gate.touch)
        await handle.result(timeout=60)
        await asyncio.to_thread(gate.unlink)


@pytest.mark.parametrize("of", ["holder", "another"])
async def test_the_job_of_a_killed_worker_runs_again_without_waiting_for_silence(
    url: str, tmp_path: Path, of: str
) -> None:
    gate, note = tmp_path / "go", tmp_path / "runs"
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            first = workers.hire()
            await until(lambda: are_living(app, first), within=90)
            id = (await living(app))[first.pid].info.id

            async def first_has_all() -> bool:
                return await holders() == [id, id, id]

            await until(first_has_all, within=90)
            keeper = first
            if of == "another":
                first = workers.hire()
                await until(lambda: are_living(app, keeper, first), within=90)
            handle = await taken_by(first.pid, gate, note)
            await until(lambda: _has_status(handle.id, Status.RUNNING), within=60)
            survivor = workers.hire() if of == "holder" else keeper
            await until(lambda: are_living(app, survivor), within=90)
            workers.kill(first)
            await until(lambda: runs(note)[-2:] == [first.pid, survivor.pid], within=90)
            gate.touch()
            assert await handle.result(timeout=60) == 2
            outcomes = [one.outcome for one in (await app.jobs.history(handle.id)).attempts]
            assert outcomes == [Outcome.LOST, Outcome.COMPLETED]
            id = (await living(app))[survivor.pid].info.id
            await until(first_has_all, within=60)
            assert BY_PROOF in workers.said(survivor)
            assert BY_LOOKS not in said(workers)
            await check_store(app.session.engine)


async def test_a_lone_worker_that_is_killed_and_started_again_runs_its_job_again(url: str, tmp_path: Path) -> None:
    gate, note = tmp_path / "go", tmp_path / "runs"
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            first = workers.hire()
            handle = await waits_for.submit(str(gate), str(note))
            await until(lambda: _has_status(handle.id, Status.RUNNING), within=90)
            workers.kill(first)
            second = workers.hire()
            await until(lambda: runs(note) == [first.pid, second.pid], within=90)
            gate.touch()
            assert await handle.result(timeout=60) == 2
            assert BY_PROOF in workers.said(second)


async def test_a_child_of_a_supervisor_buries_the_one_whose_place_it_takes(url: str, tmp_path: Path) -> None:
    gate, note = tmp_path / "go", tmp_path / "runs"
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            boss = workers.hire("--processes", "2")

            async def has_two() -> bool:
                return len(await living(app)) == 2

            await until(has_two, within=90)
            handle = await waits_for.submit(str(gate), str(note))
            await until(lambda: _has_status(handle.id, Status.RUNNING), within=90)
            (victim,) = runs(note)
            (other,) = set(await living(app)) - {victim}
            await halt(other)  # only the replacement is there to bury
            psutil.Process(victim).kill()
            await until(lambda: len(runs(note)) == 2, within=90)
            assert runs(note)[1] not in (victim, other)
            psutil.Process(other).resume()
            gate.touch()
            assert await handle.result(timeout=60) == 2
            text = workers.said(boss)
            assert BY_PROOF in text
            assert BY_LOOKS not in text
            assert set(await living(app)) == {other, runs(note)[1]}


async def halt(pid: int) -> None:
    """Halt a process at a moment when it does not keep others from writing."""
    while True:
        psutil.Process(pid).suspend()
        try:
            async with asyncio.timeout(5):
                await app.session.engine.workers.retire(UUID(int=0))  # a write that changes nothing
                return
        except TimeoutError:
            psutil.Process(pid).resume()


@pytest.mark.xdist_group("crash sqlite")
async def test_a_job_is_not_given_away_while_a_child_of_the_dead_runs_on(tmp_path: Path) -> None:
    url, gate, note = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "go", tmp_path / "runs"
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            await asyncio.to_thread(os.mkfifo, gate)
            first = workers.hire()
            handle = await deaf.submit(str(gate), str(note))
            await until(lambda: _has_status(handle.id, Status.RUNNING), within=90)
            await until(lambda: len(runs(note)) == 1, within=60)
            (child,) = runs(note)
            second = workers.hire()
            await until(lambda: are_living(app, second), within=90)
            workers.kill(first)

            async def holder() -> UUID | None:
                return await app.session.engine.documents.holder("duty:sweeper", app.host.clock.now())

            # The second looks at the first once a second, and finds that what was held for it is held.
            rows = await living(app)
            for _ in range(30):
                assert (await app.session.engine.workers.gone([rows[first.pid]])).workers == frozenset()
            assert await holder() == rows[first.pid].info.id
            assert runs(note) == [child]
            # It comes back from where it could not hear that its worker is gone, and ends.
            opened = await asyncio.to_thread(os.open, gate, os.O_RDWR)
            await until(lambda: len(runs(note)) == 2, within=90)
            with suppress(psutil.NoSuchProcess):
                assert psutil.Process(child).status() == psutil.STATUS_ZOMBIE
            assert await handle.result(timeout=60) == 2
            os.close(opened)
            assert BY_PROOF in workers.said(second)


# Nobody living is buried


@pytest.mark.xdist_group("crash postgres")
@pytest.mark.parametrize("ends", ["the connections", "the connections of a blocked loop", "the server"])
async def test_workers_whose_server_forgot_what_it_held_are_not_buried(tmp_path: Path, ends: str) -> None:
    server = await asyncio.to_thread(Server.start, tmp_path)
    url = server.url(await asyncio.to_thread(server.create_database))
    try:
        with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
            async with app:
                members = [workers.hire() for _ in range(2)]
                await until(lambda: are_living(app, *members), within=90)
                gate, note = tmp_path / "go", tmp_path / "runs"
                if ends == "the connections of a blocked loop":
                    await blocks.submit(str(gate), str(note))
                    await until(note.exists, within=60)
                for _ in range(repeats(3)):
                    before = await living(app)
                    if ends == "the server":
                        await asyncio.to_thread(server.restart)
                    else:
                        await asyncio.to_thread(server.terminate)
                    # Long before a beat is due: what is held anew is told at once.
                    await until(lambda before=before: quietly(have_beaten(app, before, proof=True)), within=60)  # type: ignore[misc]
                    assert await the_same_workers(app, before)
                gate.touch()
                assert "is dead" not in said(workers)
                assert len(runs(note)) <= 1
    finally:
        await asyncio.to_thread(server.stop)


@pytest.mark.xdist_group("crash postgres")
async def test_workers_behind_a_restarted_pooler_are_not_buried(tmp_path: Path) -> None:
    database = await asyncio.to_thread(shared().create_database)
    bouncer = await asyncio.to_thread(PgBouncer.start, shared(), tmp_path)
    url = bouncer.url(database, pgbouncer="1", listen_url=shared().url(database))
    try:
        with app.override(url=shared().url(database)), crew(url, tmp_path, beat=2.0, lease=30.0) as workers:
            async with app:
                members = [workers.hire() for _ in range(2)]
                await until(lambda: are_living(app, *members), within=90)
                for _ in range(repeats(3)):
                    before = await living(app)
                    await asyncio.to_thread(bouncer.restart)
                    await until(lambda before=before: have_beaten(app, before, proof=False), within=60)  # type: ignore[misc]
                    assert await the_same_workers(app, before)
                    assert {row.proof for row in before.values()} == {row.proof for row in (await living(app)).values()}
                assert "is dead" not in said(workers)
    finally:
        await asyncio.to_thread(bouncer.stop)


async def _has_status(id: UUID, status: Status) -> bool:
    return (await app.jobs.get(id)).status is status
