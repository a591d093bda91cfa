"""A large batch while half of its workers are killed: every job is counted once, and what follows is submitted once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from headrace import Status
from headrace.core.change import BatchTally
from tests.crash.app import app, nothing, report
from tests.support.crew import crew
from tests.support.seed import repeats
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(900)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]
COUNT = repeats(100_000, 30_000)


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def test_the_counters_are_exact_after_half_the_workers_were_killed(url: str, tmp_path: Path) -> None:
    dice = random.Random(random.SystemRandom().getrandbits(32))
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            async with app.batch(on_complete=report.draft(), on_failure=report.draft()) as batch:
                batch.add_many(nothing.draft() for _ in range(COUNT))
            for _ in range(4):
                workers.hire("--concurrency", "50")
            doomed = dice.sample(workers.members, 2)
            for share, member in zip((0.05, 0.3), doomed, strict=True):

                async def far_enough(share: float = share) -> bool:
                    return (await batch.refresh()).tally.ended >= COUNT * share

                await until(far_enough, within=300, what=f"{share:.0%} of the batch ended")
                workers.kill(member)
            assert (await batch.refresh()).tally.ended < COUNT, "they were killed at work"
            record = await batch.wait(timeout=300)
            assert record.tally == BatchTally(COUNT, COUNT)
            # The counters say what the jobs say.
            stats = (await app.stats.counts()).statuses
            reports = len((await app.jobs.list(task="report")).items)
            assert stats[Status.COMPLETED] - COUNT <= reports <= 1

            async def reported() -> bool:
                page = await app.jobs.list(task="report", status=Status.COMPLETED)
                return len(page.items) == 1

            await until(reported, within=90, what="what follows was done")
            await asyncio.sleep(1)
            [job] = (await app.jobs.list(task="report")).items
            assert job.metadata["batch"] == str(batch.id)
            ledger = (await app.stats.counts()).ledger
            assert (ledger.accepted, ledger.ended, ledger.unaccounted) == (COUNT + 1, COUNT + 1, 0)
