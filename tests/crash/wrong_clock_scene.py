"""Workers whose clocks are an hour and 90 s ahead and behind, on one PostgreSQL server, under load for a while."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import msgspec

from headrace import JobHandle
from headrace.core.job import Job
from headrace.core.status import LIVE, Reason, Status
from headrace.engine import Check, WorkerRow
from headrace.runtime.store_clock import StoreClock
from tests.crash.wrong_clocks import app, begins, blocks, fires, lasts
from tests.support.crew import Crew, crew
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import schema_of, url_of
from tests.support.until import until
from tests.support.wrong_clock import WrongClock

WRONG = (3600, 90, 0, -90, -3600)
"""By how many seconds the clocks of the workers are ahead."""
CLIENT = -1800
"""By how many seconds the clock of the client is ahead."""
EXACT = 0.5
"""Seconds before its moment at which nothing may begin: clocks are measured, not equal, and a machine may be busy."""
BUSY = 25.0
"""Seconds that a busy machine may take over anything; less than any clock here is wrong by."""
LEASE = 6.0
"""Seconds: longer than other crash tests have it, since whoever is slow must not be taken for dead."""
DUTIES = ("duty:sweeper", "duty:planner", "duty:pruner")


class Scene(msgspec.Struct, frozen=True):
    """What differs from one play to another."""

    seconds: float
    """How long there is load."""
    holder: int = 3600
    """By how many seconds the clock of the one is ahead that takes the duties, and is killed in the end."""
    beat: float = 0.4
    lease: float = LEASE
    late: float = BUSY
    """Seconds after its moment at which something must have begun."""

    @property
    def wrong(self) -> list[int]:
        """By how many seconds the clock of each is ahead, in the order in which they are hired."""
        return sorted(WRONG, key=lambda wrong: wrong != self.holder)


class Load(msgspec.Struct):
    """What was submitted, with the true moment before which it must not begin."""

    delayed: list[tuple[JobHandle[float], float]] = []
    expiring: list[JobHandle[float]] = []
    long: list[JobHandle[float]] = []
    over: list[JobHandle[float]] = []
    unserved: list[tuple[JobHandle[float], float]] = []

    def ids(self) -> list[UUID]:
        return [
            *(one.id for one, _ in (*self.delayed, *self.unserved)),
            *(one.id for one in (*self.expiring, *self.long, *self.over)),
        ]


class Figures(msgspec.Struct):
    """What was measured."""

    jobs: int
    fires: int
    latest: float
    """Seconds after its moment at which the last of the delayed jobs began."""
    latest_fire: float
    longest_gap: float
    """Seconds between two fires."""
    swept: float
    """Seconds after its last moment at which a job that nobody runs was called expired."""
    moved: float
    """Seconds until all duties of the killed worker had another holder."""


def holders(schema: str) -> dict[str, UUID]:
    """Who holds which duty."""
    rows = shared().execute(f'SELECT name, holder FROM "{schema}".leases WHERE holder IS NOT NULL')
    return {name: UUID(str(holder)) for name, holder in rows if name in DUTIES}


async def submit(load: Load) -> None:
    """A round of every kind."""
    true, now = time.time(), app.host.clock.now()
    load.delayed.append((await begins.options(delay=2).submit(), true + 2))
    load.delayed.append((await begins.options(not_before=now + timedelta(seconds=1)).submit(), true + 1))
    load.expiring.append(await begins.options(not_after=now + timedelta(minutes=10)).submit())
    load.long.append(await lasts.options(timeout=12).submit(2.0))
    load.long.append(await blocks.options(timeout=12).submit(1.0))


async def submit_doomed(load: Load) -> None:
    """What takes too long, and what nobody runs before its last moment."""
    load.over.append(await lasts.options(timeout=1).submit(600.0))
    true, last = time.time() + 2, app.host.clock.now() + timedelta(seconds=2)
    nobody = begins.options(not_after=last, requires={"machine": "none"})
    load.unserved.append((await nobody.submit(), true))


async def until_over(ids: list[UUID]) -> dict[UUID, Job]:
    async def over() -> bool:
        return all(job is not None and job.ended for job in await app.session.engine.jobs.get(ids))

    await until(over, within=120, what="all have ended")
    return {job.id: job for job in await app.session.engine.jobs.get(ids) if job is not None}


def began(job: Job) -> float:
    """The true moment at which the handler was called, or was done."""
    return float(msgspec.json.decode(job.result_text or "null"))


async def check_load(load: Load, scene: Scene) -> tuple[float, float]:
    """No false time-out, nothing early, late or expired; how late the latest was, and the latest expiry."""
    jobs, latest, swept = await until_over(load.ids()), 0.0, 0.0
    for job in jobs.values():
        assert len((await app.jobs.history(job.id)).attempts) <= 1, job
    for handle, due in load.delayed:
        job = jobs[handle.id]
        assert job.status is Status.COMPLETED, job
        latest = max(latest, began(job) - due)
        assert -EXACT <= began(job) - due <= scene.late, job
    for handle in (*load.expiring, *load.long):
        assert jobs[handle.id].status is Status.COMPLETED, jobs[handle.id]
    for handle in load.over:
        job = jobs[handle.id]
        assert (job.status, job.reason) == (Status.FAILED, Reason.TIMEOUT), job
        assert job.started_at is not None
        assert job.finished_at is not None
        assert 1 - EXACT <= (job.finished_at - job.started_at).total_seconds() <= scene.late, job
    for handle, last in load.unserved:
        job = jobs[handle.id]
        assert (job.status, job.reason) == (Status.CANCELLED, Reason.EXPIRED), job
        assert job.finished_at is not None
        swept = max(swept, job.finished_at.timestamp() - last)
        assert -EXACT <= job.finished_at.timestamp() - last <= scene.late + 2 * scene.beat, job  # in every other sweep
    return latest, swept


async def check_fires(scene: Scene, killed: UUID) -> tuple[int, float, float]:
    """Jobs for all the time, none early or late; how many, how late the latest was, and the longest gap."""
    page = await app.jobs.list(schedule=fires.name, limit=1000)
    jobs, latest = [job for job in page.items if job.status not in LIVE], 0.0
    due = sorted(job.fire_at.timestamp() for job in jobs if job.fire_at is not None)
    assert len(due) >= scene.seconds
    gap = max(later - earlier for earlier, later in pairwise(due))
    assert gap <= scene.late
    for job in jobs:
        if job.status is not Status.COMPLETED:
            lost = [attempt.worker for attempt in (await app.jobs.history(job.id)).attempts]
            assert lost == [killed], job  # it ran there when that was killed
            continue
        assert job.fire_at is not None
        late = began(job) - job.fire_at.timestamp()
        latest = max(latest, late)
        assert -EXACT <= late <= scene.late, job
    return len(jobs), latest, gap


async def check_warnings(workers: Crew, rows: list[WorkerRow], scene: Scene) -> None:
    """A wrong clock is told of: in the log, once, among the workers, and by the doctor."""
    checks: list[Check] = await app.store.doctor()
    for index, wrong in enumerate(scene.wrong):
        (row,) = [row for row in rows if row.info.pid == workers.members[index].pid]
        assert abs(row.beat.clock_apart - wrong) < 1
        told = workers.log(index).read_text().count("the clock of this machine is")
        found = [one for one in checks if one.name == "clock" and str(row.info.id) in one.message]
        assert (told, len(found)) == ((1, 1) if wrong else (0, 0)), wrong
    (own,) = [one for one in checks if one.name == "clock" and "the clock of this machine is" in one.message]
    assert own.level == "warn"
    assert "30 min behind" in own.message


async def play(folder: Path, scene: Scene) -> Figures:
    """The whole scene."""
    url, schema, load = url_of(folder), schema_of(folder), Load()
    wrong = StoreClock(WrongClock(CLIENT))
    with (
        app.override(url=url, clock=wrong),
        crew(url, folder, "tests.crash.wrong_clocks:app", beat=scene.beat, lease=scene.lease) as workers,
    ):
        async with app:
            first = workers.hire("--concurrency", "30", WRONG_BY=str(scene.holder))
            await until(lambda: len(holders(schema)) == len(DUTIES), what="the first has the duties")
            for off in scene.wrong[1:]:
                workers.hire("--concurrency", "30", WRONG_BY=str(off))

            async def at_work() -> bool:
                return sum(row.alive and row.beats > 1 for row in await app.workers.list()) == len(WRONG)

            await until(at_work, within=60, what="all work")
            begin = time.monotonic()
            await submit_doomed(load)
            while time.monotonic() - begin < scene.seconds:
                await submit(load)
                await asyncio.sleep(0.25)
            latest, swept = await check_load(load, scene)
            rows = await app.workers.list()
            await check_warnings(workers, rows, scene)
            (dead,) = [row.info.id for row in rows if row.info.pid == first.pid]
            assert set(holders(schema).values()) == {dead}
            workers.kill(first)
            killed = time.monotonic()

            def have_moved() -> bool:
                found = holders(schema)
                return len(found) == len(DUTIES) and dead not in found.values()

            await until(have_moved, within=60, what="the duties move")
            moved = time.monotonic() - killed
            after = Load()
            await submit(after)
            await submit_doomed(after)
            latest, swept = map(max, zip((latest, swept), await check_load(after, scene), strict=True))
            count, latest_fire, gap = await check_fires(scene, dead)
        workers.stop()
    return Figures(len(load.ids()) + len(after.ids()), count, latest, latest_fire, gap, swept, moved)
