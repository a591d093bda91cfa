"""Two workers, one store, a minute of more jobs than rates allow: in no window do more handlers begin than allowed."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from headrace.core.job import Job
from headrace.core.status import Status
from tests.soak.rates import KINDS, LIMIT, PER, app, bucket, fixed, noise, sliding
from tests.support.crew import crew
from tests.support.servers import schemas
from tests.support.starts import EDGE, most_in_windows, most_over_bucket
from tests.support.until import until

SECONDS = 60.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def begun(kind: str) -> tuple[list[float], int]:
    """When the handlers of a kind were called, by the wall clock; and how often one of them was given back before."""
    jobs, cursor = list[Job](), None
    while True:
        page = await app.jobs.list(task=kind, status=[Status.COMPLETED], limit=500, cursor=cursor)
        jobs += page.items
        cursor = page.cursor
        if cursor is None:
            usual = min(job.epoch for job in jobs)
            return sorted(job.result for job in jobs), sum(job.epoch > usual for job in jobs)


def allowed(kind: str, starts: list[float]) -> int:
    """How many may begin from the first call to the end of the load (of a fixed rate: to the last call's window)."""
    if kind == "fixed":
        return LIMIT * int(starts[-1] // PER - starts[0] // PER + 1)
    return int(LIMIT * (SECONDS / PER + (kind == "bucket")))


async def test_no_window_has_more_than_its_rate_allows(url: str, tmp_path: Path) -> None:
    dice = random.Random(12)
    with app.override(url=url), crew(url, tmp_path, module="tests.soak.rates:app") as workers:
        async with app:
            await app.tasks.announce()
            for task in (fixed, sliding, bucket):
                await task.map([()] * 1000)
            since = time.time()
            for _ in range(2):
                workers.hire("--concurrency", "40")

            async def anything() -> bool:
                return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0) > 0

            await until(anything, what="the workers have begun")
            end = asyncio.get_running_loop().time() + SECONDS
            while asyncio.get_running_loop().time() < end:
                await noise.map([(dice.choice((0.0, 0.005, 0.02, 0.06)),) for _ in range(3)])
                await asyncio.sleep(0.25)
            found = {kind: await begun(kind) for kind in KINDS}
    calls = {kind: starts for kind, (starts, _) in found.items()}
    for kind, (starts, late) in found.items():
        most = (
            most_over_bucket(starts, LIMIT, PER, 0.0) if kind == "bucket" else most_in_windows(kind, starts, PER, 0.0)
        )
        share = f"{len(starts)} of {allowed(kind, starts)} ({len(starts) / allowed(kind, starts):.1%})"
        print(f"{url.partition(':')[0]} {kind}: {share}, at most {most:.1f} of {LIMIT} in a window, given back: {late}")
    assert most_in_windows("fixed", calls["fixed"], PER, EDGE, since) <= LIMIT
    assert most_in_windows("sliding", calls["sliding"], PER, EDGE) <= LIMIT
    assert most_over_bucket(calls["bucket"], LIMIT, PER, EDGE) <= LIMIT
    for kind, starts in calls.items():
        assert len(starts) >= allowed(kind, starts) / 2, f"{kind}: the rate is used, also on a busy machine"
