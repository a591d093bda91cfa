"""Worker processes with a continuous task are killed: its instances come back, and are never too many."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from headrace.core.attempt import Attempt
from headrace.core.job import Job
from headrace.core.schedule.continuous import Instance, instance_of
from headrace.core.status import Outcome, Status
from tests.crash.polling import INSTANCES, app
from tests.support.crew import crew
from tests.support.invariants import all_jobs, check_store
from tests.support.seed import repeats
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def test_instances_outlive_their_workers_and_are_never_too_many(url: str, tmp_path: Path) -> None:
    with app.override(url=url), crew(url, tmp_path, "tests.crash.polling:app") as workers:
        async with app:
            for _ in range(2):
                workers.hire("--concurrency", "4")
            for _ in range(repeats(5)):
                done = await completed()
                await until(lambda done=done: _more(done + 8), within=90, what="runs in all instances")  # type: ignore[misc]
                await until(lambda: workers.kill_at_work(app), within=90, what="somebody runs an instance")
                workers.hire("--concurrency", "4")
            done = await completed()
            await until(lambda: _more(done + 20), within=90)
            live = [job for job in await all_jobs(app.session.engine) if not job.ended]
            assert len({job.dedup for job in live}) == len(live) <= INSTANCES
            await app.schedules.pause("poll")
            await until(_none_live, within=90)
            workers.stop()  # a worker that read the schedule just before the pause may still begin one more run
            histories = await check_store(app.session.engine)
            runs = [
                Run(instance_of(job), _begin(one, job), one.finished_at, one.outcome, job.id)
                for job in await all_jobs(app.session.engine)
                for one in histories[job.id].attempts
            ]
            assert {run.outcome for run in runs} == {Outcome.COMPLETED, Outcome.LOST}
            # By the records of all attempts: a lost one was over when it was taken from its dead worker.
            assert {run.instance for run in runs} == {Instance("poll", number) for number in range(INSTANCES)}
            for instance in {run.instance for run in runs}:
                mine = sorted(run for run in runs if run.instance == instance)
                for one, other in pairwise(mine):
                    # The attempts of one job follow one another by their epochs, as was checked.
                    assert one.job == other.job or one.end <= other.begin, f"{one} and {other} at once"
            pids = {job.result for job in await all_jobs(app.session.engine) if job.status is Status.COMPLETED}
            assert len(pids) >= 2


class Run(NamedTuple):
    """What the record of an attempt says."""

    instance: Instance | None
    begin: datetime
    end: datetime
    outcome: Outcome
    job: UUID


def _begin(attempt: Attempt, job: Job) -> datetime:
    """When the run began; if that was not recorded, when the job was given away.

    A claim is dated when it was asked for, and may have waited for those before it; not when there was no such job.
    """
    return attempt.started_at or max(attempt.assigned_at or job.created_at, job.created_at)


async def completed() -> int:
    return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0)


async def _more(n: int) -> bool:
    return await completed() >= n


async def _none_live() -> bool:
    return (await app.session.engine.records.ledger()).live == 0
