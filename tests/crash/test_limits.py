"""Workers are killed while they hold slots: no limit is exceeded for a moment, and the slots come back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headrace.core.job import Job
from headrace.core.status import Outcome, Status
from tests.crash.app import app, limited
from tests.support import schemas
from tests.support.crew import crew
from tests.support.invariants import check_store
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]

TASK, KEY = 6, 2
"""As ``tests.crash.app`` says."""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def held_at_once(jobs: list[Job], of: Callable[[Job], object]) -> int:
    """How many jobs that are alike were held at the same moment, at most, by the records of their attempts."""
    most = 0
    marks: dict[object, list[tuple[datetime, int]]] = {}
    for job in jobs:
        for attempt in (await app.history(job.id)).attempts:
            began = attempt.started_at
            if began is None:
                # Lost before its start was recorded. A claim is dated when it was asked for, and may have waited for
                # those before it: the job was held at the latest half a second after that, until it was swept.
                assert attempt.assigned_at is not None
                began = min(attempt.assigned_at + timedelta(seconds=0.5), attempt.finished_at)
            marks.setdefault(of(job), []).extend([(began, 1), (attempt.finished_at, -1)])
    for steps in marks.values():
        now = 0
        for _, step in sorted(steps):  # of what ends and begins at one moment, the end comes first
            now += step
            most = max(most, now)
    return most


async def test_no_limit_is_exceeded_while_workers_are_killed(url: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    dice = random.Random(seed)
    count = 700
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            await app.announce()
            handles = await limited.map([(f"k{n % 5}", dice.uniform(0.01, 0.06)) for n in range(count)])
            for _ in range(3):
                workers.hire("--concurrency", "10")

            async def done() -> int:
                return (await app.stats()).statuses.get(Status.COMPLETED, 0)

            killed = 0

            async def some_done() -> bool:
                return await done() >= 20

            await until(some_done, within=60)
            while killed < 6:
                await asyncio.sleep(dice.uniform(0.2, 0.6))
                busy = {row.info.pid for row in await app.workers() if row.holds}
                living = [one for one in workers.members if one.poll() is None]
                workers.kill(dice.choice([one for one in living if one.pid in busy] or living))
                killed += 1
                workers.hire("--concurrency", "10")

            async def all_done() -> bool:
                return await done() == count

            await until(all_done, within=120, what=f"{count} limited jobs completed")
            histories = await check_store(app.engine)
            outcomes = [one.outcome for history in histories.values() for one in history.attempts]
            assert Outcome.LOST in outcomes, f"nobody held anything when he was killed (seed {seed})"
            jobs = [await app.get(handle.id) for handle in handles]
            assert await held_at_once(jobs, lambda job: job.concurrency_key) <= KEY, f"seed {seed}"
            assert await held_at_once(jobs, lambda job: job.task) <= TASK, f"seed {seed}"
            assert await held_at_once(jobs, lambda job: job.task) >= TASK - 2, "they did work side by side"
