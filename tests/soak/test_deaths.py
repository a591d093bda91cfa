"""Nobody living is buried, in fifty rounds of whatever looks like death; schedules go on while workers are killed."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import time
from pathlib import Path
from uuid import UUID

import pytest

from headrace.engine import WorkerRow
from headrace.runtime.store_clock import StoreClock
from tests.soak.deaths import app, blocks, forks
from tests.support.crew import Crew, crew
from tests.support.invariants import all_jobs
from tests.support.living import are_living, have_beaten, living, quietly, said, the_same_workers
from tests.support.servers import schemas
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import Server, shared
from tests.support.servers.server_clock import ServerClock
from tests.support.until import until
from tests.support.wrong_clock import SharedClock

ROUNDS = 50
BEAT, LEASE = 2.0, 12.0
"""Seconds: of those who are halted, or sleep."""
HALT = 8.0
"""Seconds: the longest halt. The last beat was up to a beat before it, or half a second more, and the next comes half a
second after it at the latest: who is halted for longer than a lease less a beat may be buried by looks, rightly."""

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def start(workers: Crew, count: int, **environment: str) -> list[subprocess.Popen[bytes]]:
    members = [workers.hire(**environment) for _ in range(count)]
    await until(lambda: are_living(app, *members), within=120)
    return members


def check(workers: Crew, what: str, rounds: int) -> None:
    """Nobody was buried."""
    text = said(workers)
    assert "is dead" not in text
    assert "declared dead" not in text
    print(f"{what}: nobody buried in {rounds} rounds")


async def test_halted_for_up_to_two_thirds_of_a_lease(url: str, tmp_path: Path) -> None:
    with app.override(url=url), crew(url, tmp_path, "tests.soak.deaths:app", beat=BEAT, lease=LEASE) as workers:
        async with app:
            members = await start(workers, 6)
            before = await living(app)
            for _ in range(ROUNDS // 5):
                for member in (halted := random.sample(members, 5)):  # so that every duty's holder is among them
                    workers.freeze(member)
                await asyncio.sleep(random.uniform(1.0, HALT))
                for member in halted:
                    workers.thaw(member)
                rows = await living(app)
                await until(lambda rows=rows: have_beaten(app, rows, proof=False), within=60)  # type: ignore[misc]
            assert await the_same_workers(app, before)
            check(workers, f"SIGSTOP of up to {HALT:.0f} s of a lease of {LEASE:.0f} s", ROUNDS)


async def test_a_blocked_loop_with_its_connections_reset(tmp_path: Path) -> None:
    """Only its own: whoever probes it goes on over the same connection, and may take a free lock for a proof."""
    server = await asyncio.to_thread(Server.start, tmp_path)
    url = server.url(await asyncio.to_thread(server.create_database))
    try:
        with app.override(url=url), crew(url, tmp_path, "tests.soak.deaths:app", beat=10.0, lease=30.0) as workers:
            async with app:
                await start(workers, 3)
                gate, note = tmp_path / "go", tmp_path / "runs"
                await blocks.submit(str(gate), str(note))
                await until(lambda: note.exists() and note.read_text().endswith("\n"), within=60)
                victim = int(note.read_text())
                await until(lambda: is_watched(victim), within=60, what="another is the sweeper")
                for _ in range(ROUNDS):
                    before = await living(app)
                    blocked = {victim: before[victim]}
                    await asyncio.to_thread(server.terminate, victim)
                    await until(lambda blocked=blocked: have_beaten(app, blocked, proof=True), within=60)  # type: ignore[misc]
                    await asyncio.sleep(random.uniform(0.0, 1.0))
                    assert await the_same_workers(app, before)
                    after = await living(app)
                    assert all(after[pid].proof == before[pid].proof for pid in before if pid != victim)
                assert note.read_text() == f"{victim}\n"
                gate.touch()
                check(workers, "a blocked loop, its connections reset", ROUNDS)
    finally:
        await asyncio.to_thread(server.stop)


async def is_watched(pid: int) -> bool:
    """Whether a process other than this has the duty to probe all."""
    sweeper = await holder("duty:sweeper")
    return sweeper is not None and sweeper != (await living(app))[pid].info.id


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_suspended_machine(kind: str, tmp_path: Path) -> None:
    """All workers are on it; the time that it sleeps passes on the server, too. If that is more than two leases, the
    server has given up their connections."""
    clock = SharedClock(tmp_path / "clock")
    server = await asyncio.to_thread(ServerClock, shared()) if kind == "postgres" else None
    url = server.url if server else f"sqlite:///{tmp_path / 'jobs.db'}"

    async def suspend(seconds: float, *, cut: bool) -> None:
        for member in members:
            workers.freeze(member)
        clock.sleep(seconds)
        if server:
            await asyncio.to_thread(server.set, seconds)
        if cut:
            await asyncio.to_thread(shared().terminate)
        for member in random.sample(members, len(members)):
            workers.thaw(member)
            await asyncio.sleep(random.uniform(0.0, 0.5))  # whoever wakes first finds the others silent

    with (
        app.override(url=url, clock=StoreClock(clock)),
        crew(url, tmp_path, "tests.soak.deaths:app", beat=BEAT, lease=LEASE) as workers,
    ):
        async with app:
            members = await start(workers, 3, CLOCK=str(tmp_path / "clock"))
            first, slept = await living(app), 0.0
            for _ in range(ROUNDS):
                before = await quiet_living()
                seconds = random.choice([BEAT, LEASE - 1, LEASE + 1, 3 * LEASE, 3600.0, 86400.0])
                cut = server is not None and seconds > 2 * LEASE
                await suspend(seconds, cut=cut)
                slept += seconds
                await until(lambda before=before, cut=cut: quietly(have_beaten(app, before, proof=cut)), within=60)  # type: ignore[misc]
                assert ids(await quiet_living()) == ids(first)
            check(workers, f"a suspended machine, for {slept / 86400:.1f} days", ROUNDS)


def ids(rows: dict[int, WorkerRow]) -> dict[int, UUID]:
    """Which worker each process is."""
    return {pid: row.info.id for pid, row in rows.items()}


async def quiet_living() -> dict[int, WorkerRow]:
    """The living, as soon as the store answers."""
    while True:
        try:
            return await living(app)
        except ConnectionError:
            await asyncio.sleep(0.05)


async def test_a_restarted_server(tmp_path: Path) -> None:
    server = await asyncio.to_thread(Server.start, tmp_path)
    url = server.url(await asyncio.to_thread(server.create_database))
    try:
        with app.override(url=url), crew(url, tmp_path, "tests.soak.deaths:app", beat=10.0, lease=30.0) as workers:
            async with app:
                await start(workers, 3)
                for _ in range(ROUNDS):
                    before = await quiet_living()
                    await asyncio.to_thread(server.restart)
                    await until(lambda before=before: quietly(have_beaten(app, before, proof=True)), within=60)  # type: ignore[misc]
                    assert await quietly(the_same_workers(app, before))
                check(workers, "a restarted server", ROUNDS)
    finally:
        await asyncio.to_thread(server.stop)


@pytest.mark.parametrize("direct", [True, False])
async def test_a_restarted_pooler(tmp_path: Path, direct: bool) -> None:
    database = await asyncio.to_thread(shared().create_database)
    bouncer = await asyncio.to_thread(PgBouncer.start, shared(), tmp_path)
    more = {"listen_url": shared().url(database)} if direct else {}
    url = bouncer.url(database, pgbouncer="1", **more)
    try:
        with (
            app.override(url=shared().url(database)),
            crew(url, tmp_path, "tests.soak.deaths:app", beat=2.0, lease=30.0) as workers,
        ):
            async with app:
                await start(workers, 3)
                for _ in range(ROUNDS):
                    before = await living(app)
                    await asyncio.to_thread(bouncer.restart)
                    await until(lambda before=before: have_beaten(app, before, proof=False), within=60)  # type: ignore[misc]
                    assert await the_same_workers(app, before)
                check(workers, f"a restarted PgBouncer, {'with' if direct else 'without'} a direct way", ROUNDS)
    finally:
        await asyncio.to_thread(bouncer.stop)


async def test_forked_children_that_end(url: str, tmp_path: Path) -> None:
    with app.override(url=url), crew(url, tmp_path, "tests.soak.deaths:app", beat=10.0, lease=30.0) as workers:
        async with app:
            await start(workers, 2)
            before = await living(app)
            for _ in range(ROUNDS):
                handle = await forks.submit()
                await handle.result(timeout=60)
            await asyncio.sleep(5)  # two probes
            assert await the_same_workers(app, before)
            check(workers, "a forked child that ends", ROUNDS)


async def holder(duty: str) -> UUID | None:
    return await app.session.engine.documents.holder(duty, app.host.clock.now())


async def test_a_schedule_goes_on_while_its_planners_are_killed(url: str, tmp_path: Path) -> None:
    with app.override(url=url), crew(url, tmp_path, "tests.soak.deaths:app", beat=10.0, lease=30.0) as workers:
        async with app:
            await start(workers, 6)
            begin, deadline, planners, others = app.host.clock.now(), time.monotonic() + 60, 0, 0
            while time.monotonic() < deadline:
                await asyncio.sleep(2)
                planner, sweeper = [await holder(duty) for duty in ("duty:planner", "duty:sweeper")]
                alive = {member.pid: member for member in workers.members if member.poll() is None}
                rows = {row.info.id: alive[pid] for pid, row in (await living(app)).items() if pid in alive}
                # Who plans, each time; while nobody does, another, but not the one that is about to.
                rest = [member for id, member in rows.items() if id != sweeper]
                victim = rows[planner] if planner in rows else random.choice(rest) if rest else None
                if victim is not None:
                    workers.kill(victim)
                    planners, others = planners + (planner in rows), others + (planner not in rows)
                    workers.hire()
            end = app.host.clock.now()
            made = [job.fire_at for job in await all_jobs(app.session.engine) if job.fire_at is not None]
            fires = sorted(at for at in made if begin <= at <= end)
            gaps = [(after - before).total_seconds() for before, after in itertools.pairwise([begin, *fires, end])]
            killed = f"{planners} planners and {others} others killed in 60 s"
            print(
                f"{killed}: {len(fires)} fires, the longest gap {max(gaps):.1f} s,"
                f" at the begin {gaps[0]:.1f} s, at the end {gaps[-1]:.1f} s"
            )
            assert max(gaps) <= 6
