"""Messages that come again while the first of them is still being written, as from a client that lost patience."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from headrace import Status
from tests.hub.remote_workers.working import CAN, said, submitted, work
from tests.hub.serving import Served, serving
from tests.support.until import until

pytestmark = pytest.mark.filterwarnings("ignore::headrace.client.api.tasks.UnregisteredTask")


@pytest.fixture
async def hub() -> AsyncIterator[Served]:
    async with serving("memory://") as hub:
        yield hub


async def running(hub: Served) -> tuple[str, Any]:
    """The lease of a job that runs, and what the hub knows of it."""
    await submitted(hub.client)
    given = await work(hub.client, "claim_job", worker_id="w", capabilities=CAN, wait=20)
    await work(hub.client, "start_job", lease=given["lease"])
    [worker] = hub.hub.fleet.workers.values()
    return given["lease"], worker.held[UUID(given["job_id"])]


async def both(held: Any, first: Any, second: Any) -> list[Any]:
    """The answers to two messages of which the second came before the first was written."""
    async with held.lock:
        asked = []
        for number, message in enumerate((first, second), 1):
            asked.append(asyncio.create_task(message))
            await until(lambda number=number: len(held.lock._waiters or ()) == number)  # type: ignore[misc]
    return await asyncio.gather(*asked)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("complete_job", {"result": {"n": 1}}),
        ("fail_job", {"error": "no", "retry": True}),
        ("fail_job", {"error": "no", "retry": False}),
        ("snooze_job", {"delay": 60}),
        ("release_job", {}),
    ],
)
async def test_an_end_that_is_said_twice_at_once_is_answered_twice_alike(
    hub: Served, message: str, fields: dict[str, Any]
) -> None:
    lease, held = await running(hub)
    first, second = await both(held, *(work(hub.client, message, lease=lease, **fields) for _ in range(2)))
    assert first == second
    [worker] = hub.hub.fleet.workers.values()
    assert worker.done == (message != "release_job"), "counted once"


@pytest.mark.parametrize("first", ["fail_job", "update_job_progress"])
async def test_progress_that_meets_the_end_is_acknowledged_and_not_written(hub: Served, first: str) -> None:
    lease, held = await running(hub)
    messages = {
        "fail_job": work(hub.client, "fail_job", lease=lease, error="no", retry=False),
        "update_job_progress": work(hub.client, "update_job_progress", lease=lease, progress=50),
    }
    asked = [messages.pop(first), *messages.values()]
    answers = {answer["type"] for answer in await both(held, *asked)}
    assert answers == {"job_failed", "progress_acknowledged"}
    job = await hub.app.jobs.get(held.job.id)
    assert (job.status, job.progress) == (Status.FAILED, None)


async def test_of_reports_at_once_the_newest_is_written(hub: Served) -> None:
    lease, held = await running(hub)
    asked = [work(hub.client, "update_job_progress", lease=lease, progress=percent) for percent in (10, 20)]
    assert [answer["type"] for answer in await both(held, *asked)] == ["progress_acknowledged"] * 2
    job = await hub.app.jobs.get(held.job.id)
    assert job.progress is not None
    assert job.progress.percent == 20


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("accept_job", {}),
        ("prepare_job", {}),
        ("start_job", {}),
        ("job_log", {"first": 1, "lines": [{"message": "late"}]}),
        ("job_step", {"name": "one", "result": 1}),
        ("fail_job", {"error": "late"}),
    ],
)
async def test_what_was_said_before_the_end_and_is_served_after_it_is_stale(
    hub: Served, message: str, fields: dict[str, Any]
) -> None:
    lease, held = await running(hub)
    done, late = await both(
        held, work(hub.client, "complete_job", lease=lease), said(hub.client, message, lease=lease, **fields)
    )
    assert done["type"] == "job_completed"
    assert late.status_code == 409
    assert late.json()["type"].endswith("stale-job"), late.text
