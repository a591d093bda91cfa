"""Recovery at full strength: what a killed worker ran is run by all free slots of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.status import Status
from tests.crash.poisoned import app, long
from tests.support.crew import crew
from tests.support.invariants import check_store
from tests.support.until import until

JOBS, SLOTS, SECONDS = 16, 10, 1.5


@pytest.mark.timeout(120)
async def test_what_a_killed_worker_ran_takes_all_free_slots(tmp_path: Path) -> None:
    """Sixteen jobs, ten slots: two waves, the first of ten."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with app.override(url=url), crew(url, tmp_path, "tests.crash.poisoned:app") as workers:
        async with app:

            async def running() -> int:
                return (await app.stats.counts()).statuses.get(Status.RUNNING, 0)

            async def all_run() -> bool:
                return await running() == JOBS

            jobs = await long.map([(n, SECONDS) for n in range(JOBS)])
            victim = workers.hire("--concurrency", str(JOBS))
            await until(all_run, within=60, what="all jobs run")
            workers.freeze(victim)  # so that none of them ends before it is killed
            assert await running() == JOBS
            workers.hire("--concurrency", str(SLOTS))
            workers.kill(victim)
            for job in jobs:
                await job.result(timeout=60)
            histories = await check_store(app.session.engine)
            runs = sorted(
                (last.started_at, last.finished_at)
                for last in (histories[job.id].attempts[-1] for job in jobs)
                if last.started_at is not None
            )
    assert len(runs) == JOBS
    peak = max(sum(began <= at < ended for began, ended in runs) for at, _ in runs)
    assert peak == SLOTS
