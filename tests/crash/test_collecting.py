"""Worker processes are killed in the middle of bulk calls: every job is done, and none is charged for another."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from headrace.core.status import Outcome, Status
from tests.crash.collecting import app, collects
from tests.support.crew import crew
from tests.support.invariants import all_jobs, check_store
from tests.support.seed import repeats
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]
N = 2000


@pytest.mark.parametrize("kind", STORES)
async def test_every_job_survives_workers_killed_within_calls(kind: str, tmp_path: Path) -> None:
    url = schemas.url_of(tmp_path) if kind == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"
    with app.override(url=url), crew(url, tmp_path, "tests.crash.collecting:app") as workers:
        async with app:
            jobs = await collects.map([(n,) for n in range(N)])

            async def done() -> int:
                return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0)

            async def did_some(pid: int) -> bool:
                # By the results: what the one before had on its way may be stored after its death.
                return any(job.result == pid for job in await all_jobs(app.session.engine))

            async def all_done() -> bool:
                return await done() == N

            for _ in range(repeats(4)):  # one after the other: begun, seen to have done something, killed at its work
                member = workers.hire("--concurrency", "1")
                await until(partial(did_some, member.pid), within=90, what="something done")
                await until(lambda: workers.kill_at_work(app), within=60, what="it holds something")
            assert await done() < N
            workers.hire("--concurrency", "2")
            await until(all_done, within=180, what=f"{N} jobs completed")
            histories = await check_store(app.session.engine)
            outcomes = Counter(one.outcome for history in histories.values() for one in history.attempts)
            assert outcomes[Outcome.COMPLETED] == N
            assert outcomes[Outcome.LOST] > 0
            who = {await job.result(timeout=60) for job in jobs}
    assert who == {member.pid for member in workers.members}
