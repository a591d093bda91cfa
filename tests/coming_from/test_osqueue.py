"""osqueue's page about the lifecycle of a job, played over HTTP in its words: its worked timeline, and its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.coming_from.stage import Stage, Worker, staged
from tests.hub.live.listening import connected
from tests.support.apps import url_of
from tests.support.until import until

pytestmark = pytest.mark.parametrize("engine", ["sqlite", "postgres"])

SHOWN = {"unclaimed", "in_progress", "completed", "exhausted"}

TIMEOUT = 30.0
"""Seconds without a heartbeat."""
MOST_ATTEMPTS = 3

JOB: dict[str, Any] = {
    "type": "email:send",
    "payload": {"to": "ann@example.org", "subject": "Tea"},
    "max_retries": MOST_ATTEMPTS - 1,
    "retry_delays": [0],
}


async def claimed(stage: Stage, worker: Worker, id: str, attempts: int) -> None:
    """Have a worker claim and begin the job."""
    assert await worker.given() == id
    assert (await worker.says("start_job"))["attempt"] == attempts
    assert await stage.status(id) == "in_progress"


async def consumers(stage: Stage, *names: str) -> list[Worker]:
    return [await stage.worker(name, tasks=["email:send"]) for name in names]


@pytest.mark.every_engine
async def test_a_job_is_submitted_claimed_and_completed(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "osqueue", worker_lease=TIMEOUT) as stage:
        [worker] = await consumers(stage, "w1")
        assert (await worker.claims())["type"] == "no_job", "where osqueue answers null"
        first, second = await stage.submit(**JOB), await stage.submit(**JOB)
        assert (await stage.status(first), (await stage.job(first))["attempt"]) == ("unclaimed", 0)
        await claimed(stage, worker, first, 1)
        await stage.passes(12)
        await worker.says("complete_job")
        assert await stage.status(first) == "completed"
        assert await stage.found("COMPLETED") == {first}
        assert await stage.found("unclaimed") == {second}
        assert (await stage.get("/api/stats"))["ledger"]["completed"] == 1, "its completedTotal"


@pytest.mark.every_engine
async def test_a_worker_crashes_at_8_seconds_and_another_has_the_job_at_39(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "osqueue", worker_lease=TIMEOUT) as stage:
        [second] = await consumers(stage, "w2")
        id = await stage.submit(**JOB)
        async with connected(stage.hub) as first:
            await first.ask("register_worker", worker_id="w1", tasks=["email:send"])
            given = await first.ask("claim_job", worker_id="w1", wait=20)
            assert given["job_id"] == id
            assert (await first.ask("start_job", worker_id="w1", job_id=id))["attempt"] == 1
            for seconds in (5, 3):
                await stage.passes(seconds)
                await first.ask("heartbeat", worker_id="w1")
            first.connection.transport.abort()

            async def is_cut_off() -> bool:
                return any(row.grace is not None for row in await stage.hub.app.session.engine.workers.list())

            await until(is_cut_off)
        assert await stage.status(id) == "in_progress"
        await stage.passes(30)  # a connection that broke is noticed before the silence is 30 s long
        assert await stage.status(id) == "unclaimed", "38 s"
        await stage.passes(1)
        await claimed(stage, second, id, 2)
        late = await stage.post("/api/work/complete_job", {"lease": given["lease"]})
        assert (late.status_code, late.json()["type"].rpartition("/")[2]) == (409, "stale-job")
        await second.says("complete_job")
        assert await stage.status(id) == "completed"


@pytest.mark.every_engine
async def test_a_worker_that_falls_silent_at_8_seconds_is_noticed_by_53(engine: str, tmp_path: Path) -> None:
    """Over HTTP there is no connection that ends: what is counted are looks, of which the last may be late."""
    async with staged(url_of(engine, tmp_path), "osqueue", worker_lease=TIMEOUT) as stage:
        first, second = await consumers(stage, "w1", "w2")
        id = await stage.submit(**JOB)
        await claimed(stage, first, id, 1)
        await stage.passes(8)
        first.lives = False
        await stage.passes(20)
        assert await stage.status(id) == "in_progress", "28 s, of which 20 in silence"
        await stage.passes(25)
        assert await stage.status(id) == "unclaimed"
        await claimed(stage, second, id, 2)
        await first.says_late("complete_job")
        await second.says("complete_job")
        assert await stage.status(id) == "completed"


@pytest.mark.every_engine
async def test_a_job_whose_three_attempts_are_silent_is_exhausted_and_kept(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "osqueue") as stage:
        [worker] = await consumers(stage, "w1")
        id = await stage.submit(**JOB, heartbeat=TIMEOUT)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            await claimed(stage, worker, id, attempt)
            for _ in range(5):  # heartbeats of the job, every 5 s
                await stage.passes(5)
                await worker.says("update_job_progress", progress=50)
            await stage.passes(TIMEOUT - 2)
            assert await stage.status(id) == "in_progress", "its worker lives, and so may the job"
            await stage.passes(14)  # what a worker has to say so itself, and a look of the sweeper
            expected = "unclaimed" if attempt < MOST_ATTEMPTS else "exhausted"
            assert await stage.status(id) == expected
        job = await stage.job(id)
        assert (job["reason"], job["attempt"]) == ("timeout", MOST_ATTEMPTS)
        assert await stage.found("exhausted") == {id}
        assert (await worker.claims())["type"] == "no_job"
        assert (await stage.act(id, "retry"))["status"] == "unclaimed", "nothing is dropped"


@pytest.mark.every_engine
async def test_every_status_is_shown(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "osqueue") as stage:
        [worker] = await consumers(stage, "w1")
        done, given_up = await stage.submit(**JOB), await stage.submit(**JOB)
        await claimed(stage, worker, done, 1)
        await worker.says("complete_job")
        await stage.status(done)
        for attempt in range(1, MOST_ATTEMPTS + 1):  # a failure is said, and not waited for
            await claimed(stage, worker, given_up, attempt)
            await worker.says("fail_job", error="no such mailbox")
            await stage.status(given_up)
        assert stage.seen == SHOWN


@pytest.mark.every_engine
async def test_a_claim_filters_by_type_first_in_first_out(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "osqueue") as stage:
        mails = [await stage.submit(**JOB) for _ in range(2)]
        await stage.submit(**JOB | {"type": "image:scale"})
        worker = await stage.worker("w1", tasks=["email:send"], max_concurrent_jobs=3)
        assert [await worker.given() for _ in mails] == mails
        assert (await worker.claims())["type"] == "no_job"
