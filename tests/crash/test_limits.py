"""Workers are killed while they hold slots: no limit is exceeded for a moment, and the slots come back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from headrace import JobHandle
from headrace.core.attempt import History
from headrace.core.job import Job
from headrace.core.status import HELD, Outcome, Status
from tests.crash.app import app, limited
from tests.support.crew import crew
from tests.support.invariants import all_jobs, check_store
from tests.support.seed import repeats
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]

TASK, KEY = 6, 2
"""As ``tests.crash.app`` says."""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


APART = timedelta(milliseconds=10)
"""By how much the times of two sessions may differ here."""


def run_at_once(jobs: list[Job], histories: dict[UUID, History], of: Callable[[Job], object]) -> int:
    """How many jobs that are alike were run at the same moment, at most, by the records of their attempts."""
    most = 0
    marks: dict[object, list[tuple[datetime, int]]] = {}
    for job in jobs:
        for attempt in histories[job.id].attempts:
            # Of one that was lost before its start was recorded it is not known since when it was held: a claim is
            # dated when it was asked for, and may have waited for those before it. The looks at the store see it.
            # And an end is dated by one session, the start that it made room for by another: both measure the store's
            # time, and on a busy machine one may be a little behind the other.
            if attempt.started_at is not None and (since := attempt.started_at + APART) < attempt.finished_at:
                marks.setdefault(of(job), []).extend([(since, 1), (attempt.finished_at, -1)])
    for steps in marks.values():
        now = 0
        for _, step in sorted(steps):  # of what ends and begins at one moment, the end comes first
            now += step
            most = max(most, now)
    return most


class Looks:
    """Looks at what the store gives to anybody, the dead included, again and again; one look is one moment of it."""

    def __init__(self) -> None:
        self.by_key = self.in_all = 0
        """How many were held at once, at most."""

    async def __call__(self) -> None:
        while True:
            held = (await app.jobs.list(task="limited", status=list(HELD), limit=500)).items
            keys = Counter(job.concurrency_key for job in held)
            self.by_key = max(self.by_key, *keys.values(), 0)
            self.in_all = max(self.in_all, len(held))
            await asyncio.sleep(0.02)


async def test_no_limit_is_exceeded_while_workers_are_killed(url: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    dice = random.Random(seed)
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            await app.tasks.announce()
            handles: list[JobHandle[None]] = []

            async def more(count: int) -> None:
                handles.extend(await limited.map([(f"k{n % 5}", dice.uniform(0.01, 0.06)) for n in range(count)]))

            looks = Looks()
            looking = asyncio.create_task(looks())
            await more(repeats(500, 200))
            for _ in range(3):
                workers.hire("--concurrency", "10")

            async def done() -> int:
                return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0)

            async def some_done() -> bool:
                return await done() >= 20

            async def at_work() -> bool:
                if await done() > len(handles) - 100:  # so that there is always something to do
                    await more(100)
                return await workers.kill_at_work(app, dice)

            await until(some_done, within=90)
            for _ in range(repeats(6)):
                await asyncio.sleep(dice.uniform(0.2, 0.6))
                await until(at_work, within=60, what="somebody holds something")
                workers.hire("--concurrency", "10")

            async def all_done() -> bool:
                return await done() == len(handles)

            await until(all_done, within=180, what="all limited jobs completed")
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            assert looking.cancelled(), "it looked all the time"
            assert looks.by_key <= KEY, f"seed {seed}"
            assert TASK - 2 <= looks.in_all <= TASK, f"they did work side by side (seed {seed})"
            histories = await check_store(app.session.engine)
            outcomes = [one.outcome for history in histories.values() for one in history.attempts]
            assert Outcome.LOST in outcomes, f"nobody held anything when he was killed (seed {seed})"
            jobs = await all_jobs(app.session.engine)
            assert {job.id for job in jobs} == {handle.id for handle in handles}
            assert run_at_once(jobs, histories, lambda job: job.concurrency_key) <= KEY, f"seed {seed}"
            assert run_at_once(jobs, histories, lambda job: job.task) <= TASK, f"seed {seed}"
