"""Workers behind hubs die, fall silent and are cut off, and so do hubs: nothing is lost, nothing is finished twice."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from headrace import App, Retry
from headrace.client.submission.by_name import draft_with_warnings
from headrace.core.attempt import History
from headrace.core.status import Outcome, Status
from tests.hub.process import Running, started
from tests.hub.remote_workers.distant import distant
from tests.support.invariants import check_store
from tests.support.servers import schemas
from tests.support.servers.proxy import Proxy
from tests.support.until import until

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]

HURRIED = {"HEADRACE_BEAT": "0.4", "HEADRACE_LEASE": "2"}
LONG = 60.0
"""Seconds of a lease that nobody outlives here."""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


class Store:
    """A store as somebody beside the hubs sees it."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def submit(self, task: str) -> UUID:
        """A job that may be tried often, and at once."""
        draft, _ = await draft_with_warnings(self.app, task, {"n": 1}, {"retry": Retry(5, backoff=[0.0])})
        return (await draft.submit()).id

    async def until(self, id: UUID, status: Status) -> None:
        """Wait until a job has this status."""

        async def there() -> bool:
            return (await self.app.jobs.get(id)).status is status

        await until(there, within=90, what=f"{id} {status}")

    async def settled(self, *ids: UUID) -> dict[UUID, History]:
        """What became of everything, once all of these are completed: each finished once, and the books agree."""
        for id in ids:
            await self.until(id, Status.COMPLETED)
        assert (await self.app.store.verify()).ok
        histories = await check_store(self.app.session.engine)
        assert set(ids) == set(histories)
        return histories


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    async with App(url) as app:
        yield Store(app)


def hub(folder: Path, url: str, lease: float = LONG) -> Any:
    return started(folder, "hub", "--url", url, "--no-webhooks", "--worker-lease", f"{lease}s", environment=HURRIED)


async def post(hub: Running, message: str, **fields: Any) -> httpx2.Response:
    """What a message over HTTP is answered with."""
    async with httpx2.AsyncClient(base_url=hub.address, trust_env=False, timeout=60) as client:
        return await client.post(f"/api/work/{message}", json=fields)


async def refused(hub: Running, job: dict[str, Any]) -> None:
    """Assert that whoever had the job so far is not listened to any more."""
    for message, fields in (("complete_job", {"result": "late"}), ("update_job_progress", {"progress": 1})):
        answer = await post(hub, message, lease=job["lease"], **fields)
        assert answer.status_code == 409
        assert answer.json()["type"].endswith("/stale-job")


async def test_a_worker_dies_at_every_step(url: str, tmp_path: Path) -> None:
    steps = ("assigned", "accepted", "running", "completing")
    with hub(tmp_path, url, lease=6.0) as one:
        async with opened(url) as store:
            ids = {step: await store.submit(step) for step in steps}
            leases = dict(zip(steps, await asyncio.gather(*(_dies(one, step) for step in steps)), strict=True))
            # What it said before it died counts, although it never heard so. It may say so again.
            await store.until(ids["completing"], Status.COMPLETED)
            again = await post(one, "complete_job", lease=leases["completing"]["lease"], result="by the dead")
            assert (again.status_code, again.json()["type"]) == (200, "job_completed"), again.text
            async with distant(one.address, "heir") as heir:
                await heir.says("register_worker", "worker_registered", tasks=list(steps))
                for _ in steps[:-1]:
                    job = await heir.claims()
                    await refused(one, leases[job["job_type"]])
                    await heir.about("complete_job", "job_completed", result="by the heir")
            histories = await store.settled(*ids.values())
            results = {step: (await store.app.jobs.get(id)).result for step, id in ids.items()}
    assert results == {**dict.fromkeys(steps, "by the heir"), "completing": "by the dead"}
    for step, id in ids.items():
        *before, last = histories[id].attempts
        assert last.outcome is Outcome.COMPLETED
        # What was offered, and never accepted, was no attempt.
        lost = [Outcome.LOST] if step in ("accepted", "running") else []
        assert [one.outcome for one in before] == lost
        assert [one.started_at is not None for one in before] == [step == "running"] * len(lost)


async def _dies(one: Running, step: str) -> dict[str, Any]:
    """A worker that dies in this step; what it was assigned."""
    async with distant(one.address, f"dies-{step}") as worker:
        await worker.says("register_worker", "worker_registered", tasks=[step])
        job = await worker.claims()
        if step != "assigned":
            await worker.about("accept_job", "job_accepted")
        if step in ("running", "completing"):
            await worker.about("update_job_progress", "progress_acknowledged", progress=50)
        if step == "completing":
            await worker.about("complete_job", None, last=True, result="by the dead")
            await worker.ended()
        return job


@pytest.mark.parametrize("url", STORES[:1], indirect=True)
async def test_who_is_silent_is_buried_and_nobody_else(url: str, tmp_path: Path) -> None:
    lease = 8.0
    with hub(tmp_path, url, lease=lease) as one:
        async with (
            opened(url) as store,
            distant(one.address, "silent") as silent,
            distant(one.address, "beats") as beats,
            distant(one.address, "reports") as reports,
        ):
            ids = {}
            for worker in (silent, beats, reports):
                ids[worker.name] = await store.submit(worker.name)
                await worker.says("register_worker", "worker_registered", tasks=[worker.name])
                await worker.claims()
                await worker.about("start_job", "job_started")
            living = [
                asyncio.create_task(_again(lambda: beats.says("heartbeat", "heartbeat_acknowledged"))),
                asyncio.create_task(
                    _again(lambda: reports.about("update_job_progress", "progress_acknowledged", progress=10))
                ),
            ]
            await silent.says("heartbeat", "heartbeat_acknowledged")
            heard_at = datetime.now(UTC)
            silent.freeze()
            try:
                await store.until(ids["silent"], Status.QUEUED)
                [lost] = (await store.app.jobs.history(ids["silent"])).attempts
                assert lost.outcome is Outcome.LOST
                assert lost.finished_at >= heard_at + timedelta(seconds=lease), "not before its time"
                assert not any(task.done() for task in living), "these were heard all the time"
            finally:
                for task in living:
                    task.cancel()
                await asyncio.gather(*living, return_exceptions=True)
            rows = {row.info.name: row.alive for row in await store.app.session.engine.workers.list()}
            assert (rows["beats"], rows["reports"]) == (True, True)
            for worker in (beats, reports):
                await worker.about("complete_job", "job_completed", result=None)
            silent.thaw()
            await silent.about("complete_job", "stale_job", result="late")
            async with distant(one.address, "heir") as heir:
                await heir.says("register_worker", "worker_registered", tasks=["silent"])
                await heir.claims()
                await heir.about("complete_job", "job_completed", result="by the heir")
            histories = await store.settled(*ids.values())
            assert (await store.app.jobs.get(ids["silent"])).result == "by the heir"
    for name in ("beats", "reports"):
        assert [one.outcome for one in histories[ids[name]].attempts] == [Outcome.COMPLETED]


async def _again(say: Any) -> None:
    while True:
        await say()
        await asyncio.sleep(0.3)


async def test_a_hub_dies_and_its_worker_goes_on_over_another(url: str, tmp_path: Path) -> None:
    with hub(tmp_path, url) as one, hub(tmp_path, url) as other:
        async with opened(url) as store:
            running, done = await store.submit("work"), await store.submit("work")
            async with distant(one.address, "roams") as worker:
                known = await worker.says("register_worker", "worker_registered", tasks=["work"], max_concurrent_jobs=2)
                jobs = {UUID(job["job_id"]): job for job in [await worker.claims(), await worker.claims()]}
                # The answers to both are lost, and perhaps what they say, too.
                worker.job = jobs[running]
                await worker.about("update_job_progress", None, progress=20)
                worker.job = jobs[done]
                await worker.about("complete_job", None, result="done")
                one.process.kill()
                await worker.ended()
            async with distant(other.address, "roams") as worker:
                again = await worker.says("register_worker", "worker_registered", tasks=["work"], token=known["token"])
                assert again["worker"] == known["worker"], "it is the same one"
                for worker.job in jobs.values():
                    if worker.job is jobs[running]:
                        await worker.about("update_job_progress", "progress_acknowledged", progress=30)
                    completed = await worker.about("complete_job", "job_completed", result="done")
                    assert completed["status"] == "completed"
                histories = await store.settled(running, done)
            for history in histories.values():
                [attempt] = history.attempts
                assert (attempt.outcome, str(attempt.worker)) == (Outcome.COMPLETED, known["worker"])


async def test_the_network_is_cut_both_ways(url: str, tmp_path: Path) -> None:
    with hub(tmp_path, url, lease=8.0) as one:
        async with opened(url) as store, Proxy(one.address) as proxy, distant(one.address, "heir") as heir:
            id = await store.submit("work")
            async with distant(proxy.url, "cut") as cut:
                known = await cut.says("register_worker", "worker_registered", tasks=["work"])
                job = await cut.claims()
                await cut.about("start_job", "job_started")
                proxy.cut()
                await cut.ended()
            # It is cut off, and knows: it comes back in time, and goes on.
            async with distant(proxy.url, "cut") as cut:
                cut.job = job
                await cut.says("register_worker", "worker_registered", tasks=["work"], token=known["token"])
                await cut.about("update_job_progress", "progress_acknowledged", progress=50)
                proxy.silence()
                # Now nothing arrives on either side, and nobody is told.
                await cut.about("complete_job", None, result="unheard")
                await heir.says("register_worker", "worker_registered", tasks=["work"])
                await heir.claims()
                await heir.about("start_job", "job_started")
            # The way is open again. It says what it has to say, late.
            async with distant(proxy.url, "cut") as cut:
                cut.job = job
                await cut.about("complete_job", "stale_job", result="unheard")
                await refused(one, job)
                await heir.about("complete_job", "job_completed", result="by the heir")
                await cut.about("complete_job", "stale_job", result="unheard")
            histories = await store.settled(id)
            assert (await store.app.jobs.get(id)).result == "by the heir"
    assert [one.outcome for one in histories[id].attempts] == [Outcome.LOST, Outcome.COMPLETED]
