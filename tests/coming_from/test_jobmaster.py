"""JobMaster's page about the lifecycle of a job, played over HTTP in its words: both of its paths, and its numbers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.coming_from.stage import Stage, Worker, staged
from tests.support.apps import url_of

pytestmark = pytest.mark.parametrize("engine", ["sqlite", "postgres"])

SHOWN = {
    *("HeldOnMaster", "AssignedToBucket", "Onboarded", "Queued"),
    *("Processing", "Succeeded", "Failed", "Cancelled"),
}
"""Every status of its table but ``SavePending``, which only a second tier has."""

MINUTES = 60.0
JOB: dict[str, Any] = {"task": "hello", "payload": {"name": "Ada"}, "timeout": 5 * MINUTES, "metadata": {"by": "test"}}
"""As its defaults say: five minutes for an attempt, three retries."""


async def executed(stage: Stage, worker: Worker, id: str) -> list[str]:
    """What a job is called from its claim to the handler."""
    shown = []
    assert await worker.given() == id
    shown.append(await stage.status(id))
    for message in ("accept_job", "start_job"):
        await worker.says(message)
        shown.append(await stage.status(id))
    return shown


@pytest.mark.every_engine
async def test_both_paths_and_every_end(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "jobmaster") as stage:
        worker = await stage.worker("agent-1", tasks=["hello"])

        immediate = await stage.submit(**JOB)
        assert await stage.status(immediate) == "AssignedToBucket", "no job is SavePending: a submit is durable"
        assert await executed(stage, worker, immediate) == ["Onboarded", "Queued", "Processing"]
        await worker.says("complete_job", result="hello Ada")
        done = await stage.job(immediate)
        assert (done["status"], done["result"]) == ("Succeeded", "hello Ada")

        future = await stage.submit(**JOB, delay=2 * 3600)
        assert await stage.status(future) == "HeldOnMaster"
        assert (await worker.claims())["type"] == "no_job"
        await stage.jumps(2 * 3600)
        assert await stage.status(future) == "AssignedToBucket"
        assert await executed(stage, worker, future) == ["Onboarded", "Queued", "Processing"]
        await worker.says("fail_job", error="refused", retry=False)
        assert await stage.status(future) == "Failed"

        aborted = await stage.submit(**JOB)
        assert (await stage.act(aborted, "cancel"))["status"] == "Cancelled"
        await stage.status(aborted)

        waiting = await stage.submit(**JOB, delay=60)
        assert await stage.found("heldonmaster") == {waiting}
        assert await stage.found("Succeeded") == {immediate}
        assert await stage.found("SavePending") == set()
        assert stage.seen == SHOWN


@pytest.mark.every_engine
async def test_three_retries_with_a_backoff_of_thirty_seconds_doubled(engine: str, tmp_path: Path) -> None:
    retry = {"max_retries": 3, "initial": 30, "cap": 3600, "jitter": False}
    async with staged(url_of(engine, tmp_path), "jobmaster") as stage:
        worker = await stage.worker("agent-1", tasks=["hello"])
        id = await stage.submit(**JOB, retry=retry)
        for delay in (30, 60, 120):
            await executed(stage, worker, id)
            due = (await worker.says("fail_job", error="no answer"))["retry_at"]
            job = await stage.job(id)
            assert (job["status"], job["available_at"]) == ("HeldOnMaster", due)
            [*_, last] = await stage.attempts(id)
            assert (datetime.fromisoformat(due) - datetime.fromisoformat(last["finished_at"])).total_seconds() == delay
            await stage.jumps_to(due, before=20)
            assert (await worker.claims())["type"] == "no_job"
            await stage.jumps_to(due)
        await executed(stage, worker, id)
        await worker.says("fail_job", error="no answer")
        assert (await stage.job(id))["reason"] == "retries_exhausted"
        assert await stage.status(id) == "Failed"
        assert len(await stage.attempts(id)) == 4


@pytest.mark.every_engine
async def test_an_attempt_has_five_minutes(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "jobmaster") as stage:
        worker = await stage.worker("agent-1", tasks=["hello"])
        id = await stage.submit(**JOB, retry={"initial": 30})
        await executed(stage, worker, id)
        await stage.jumps(4 * MINUTES)
        # The worker is told at five minutes, and has ten seconds to say so itself.
        await stage.changes_after(id, 5 * MINUTES, "started_at", late=10)
        assert await stage.status(id) == "HeldOnMaster"
        [attempt] = await stage.attempts(id)
        assert attempt["outcome"] == "timed_out"
        await worker.says_late("complete_job")


@pytest.mark.every_engine
async def test_what_is_onboarded_or_queued_and_goes_no_further_is_assigned_again(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "jobmaster") as stage:
        worker = await stage.worker("agent-1", tasks=["hello"])
        id = await stage.submit(**JOB)
        for said, since in (([], "assigned_at"), (["accept_job"], "accepted_at")):
            await worker.given()
            for message in said:
                await worker.says(message)
            await stage.changes_after(id, 30, since)
            job = await stage.job(id)
            assert (job["status"], job["charged"]) == ("AssignedToBucket", 0)


@pytest.mark.every_engine
async def test_the_jobs_of_a_worker_that_dies_are_run_by_others(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "jobmaster", worker_lease=30.0) as stage:
        first, second = [await stage.worker(name, tasks=["hello"]) for name in ("agent-1", "agent-2")]
        id = await stage.submit(**JOB)
        await executed(stage, first, id)
        await stage.passes(20)
        assert await stage.status(id) == "Processing"
        first.lives = False
        await stage.passes(50)
        assert [one["outcome"] for one in await stage.attempts(id)] == ["lost"]
        assert await executed(stage, second, id) == ["Onboarded", "Queued", "Processing"]
        await first.says_late("complete_job")
        await second.says("complete_job")
        assert await stage.status(id) == "Succeeded"
        assert (await stage.job(id))["charged"] == 2, "a crash counts"


@pytest.mark.every_engine
async def test_its_limits_of_size_and_priority(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "jobmaster") as stage:
        large = JOB | {"payload": {"name": "a" * 128 * 1024}}
        assert (await stage.post("/api/jobs", large)).status_code == 413
        ids = [await stage.submit(**JOB, priority=priority) for priority in ("low", "normal", "high", "system")]
        worker = await stage.worker("agent-1", tasks=["hello"], max_concurrent_jobs=4)
        assert [await worker.given() for _ in ids] == ids[::-1]
        shown = [(await stage.job(id))["priority"] for id in ids]
        assert shown == [15, 50, 80, 95]
