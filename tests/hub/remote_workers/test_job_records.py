"""What is kept and told of jobs that ran far away is what is kept and told of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import Status
from headrace.core.status import Outcome
from headrace.hub import HubOptions
from tests.hub.live.listening import connected, listening
from tests.hub.remote_workers.working import CAN, submitted, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until

ME: dict[str, Any] = {"worker_id": "w", "capabilities": CAN}


@pytest.fixture(params=["sqlite", "postgres"])
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(url_of(request.param, tmp_path), HubOptions(webhooks=False)) as hub:
        yield hub


async def run(hub: Served, message: str = "complete_job", **fields: Any) -> dict[str, Any]:
    given = await work(hub.client, "claim_job", **ME, wait=20)
    return given | await work(hub.client, message, lease=given["lease"], **fields)


async def test_each_status_is_seen_by_others(hub: Served) -> None:
    id = await submitted(hub.client)
    async with listening(hub, f"/api/jobs/{id}/events") as stream, connected(hub) as socket:
        assert (await stream.next() or none()).data["job"]["status"] == "queued"
        me: dict[str, Any] = {"worker_id": "w", "job_id": id}
        await socket.ask("claim_job", **ME, wait=20)
        assert await next_status(stream) == "assigned"
        await socket.ask("accept_job", **me)
        assert await next_status(stream) == "accepted"
        await socket.ask("start_job", **me)
        assert await next_status(stream) == "running"
        await socket.ask("complete_job", **me, result={"ok": True})
        assert await next_status(stream) == "completed"
    shown = (await hub.client.get(f"/api/jobs/{id}")).json()
    assert (shown["result"], shown["attempt"]) == ({"ok": True}, 1)
    [attempt] = (await hub.app.jobs.history(id)).attempts
    assert attempt.assigned_at is not None
    assert attempt.started_at is not None
    [row] = await hub.app.workers.list()
    assert (row.info.name, row.info.lease, attempt.worker) == ("w", 60.0, row.info.id)


def none() -> Any:
    raise AssertionError("the stream is over")


async def next_status(stream: Any) -> str:
    while True:
        event = await stream.next() or none()
        if event.name == "status":
            return str(event.data["status"])


async def test_errors_are_kept_and_conditions_of_the_page_are_matched(hub: Served) -> None:
    policy = {
        "max_retries": 3,
        "retry_delays": [5, 15, 30],
        "retry_conditions": ["ServiceTimeoutError"],
        "no_retry_conditions": ["InvalidJobParameters"],
    }
    for type, status in (("ServiceTimeoutError", "retrying"), ("InvalidJobParameters", "failed"), ("Other", "failed")):
        id = await submitted(hub.client, **policy)
        heard = await run(hub, "fail_job", error="no", error_details={"error_type": type}, processing_time=1.5)
        assert (heard["status"], heard["retry_at"] is None) == (status, status == "failed")
        job = await hub.app.jobs.get(id)
        [attempt] = (await hub.app.jobs.history(id)).attempts
        assert (job.error and job.error.type, attempt.outcome) == (type, Outcome.FAILED)
        assert attempt.processing_time == 1.5
        if status == "retrying":
            assert (job.available_at - attempt.finished_at).total_seconds() == 5
    id = await submitted(hub.client, **policy)
    heard = await run(hub, "fail_job", error="no", retry=False, error_details={"error_type": "ServiceTimeoutError"})
    assert heard["status"] == "failed"
    assert (await hub.app.jobs.get(id)).reason == "non_retryable"


async def test_snoozed_and_released_cost_nothing(hub: Served) -> None:
    id = await submitted(hub.client)
    released = await run(hub, "release_job")
    assert released["status"] == "queued"
    snoozed = await run(hub, "snooze_job", delay=60)
    assert (snoozed["status"], snoozed["job_id"]) == ("scheduled", id)
    job = await hub.app.jobs.get(id)
    assert (job.charged, job.status) == (0, Status.SCHEDULED)


async def test_they_are_counted_in_charts_and_metrics(hub: Served) -> None:
    for _ in range(3):
        await submitted(hub.client)
        await run(hub)
    await submitted(hub.client)
    await run(hub, "fail_job", error="no", retry=False)

    async def counted() -> bool:
        totals = [one.totals for one in await hub.app.session.engine.rollups.read(*span(hub), "text_to_image", None)]
        return (sum(one.completed for one in totals), sum(one.failed for one in totals)) == (3, 1)

    token = (await work(hub.client, "register_worker", **ME))["token"]
    await work(hub.client, "heartbeat", token=token)  # with which it is handed in
    await until(counted)
    page = (await hub.client.get("/metrics")).text
    assert 'headrace_attempts_total{outcome="completed",queue="default",task="text_to_image"} 3.0' in page
    assert 'headrace_dead_letters_total{queue="default",task="text_to_image"} 1.0' in page


def span(hub: Served) -> tuple[Any, Any]:
    now = hub.app.host.clock.now()
    return now - timedelta(days=1), now + timedelta(minutes=1)


async def test_a_webhook_that_asks_for_it_is_told_of_the_offer_and_of_its_acceptance(hub: Served) -> None:
    hook = await hub.app.webhooks.add("https://hooks.example/", events=["assigned", "accepted", "started"])
    id = await submitted(hub.client)
    given = await work(hub.client, "claim_job", **ME, wait=20)
    assert given["job_id"] == id

    async def told() -> list[str]:
        page = await hub.app.webhooks.deliveries(webhook=hook.webhook.id)
        return [one.payload["message"]["type"] for one in reversed(page.items)]

    async def offered() -> bool:
        return await told() == ["job.assigned"]

    await until(offered, what="the message of the offer, before the worker accepts")
    await work(hub.client, "accept_job", lease=given["lease"])
    assert await told() == ["job.assigned", "job.accepted"]
    await work(hub.client, "start_job", lease=given["lease"])
    assert await told() == ["job.assigned", "job.accepted", "job.started"]


async def test_batches_families_and_webhooks_follow(hub: Served) -> None:
    hook = await hub.app.webhooks.add("https://hooks.example/", events=["started", "completed"])
    first = await submitted(hub.client)
    second = await submitted(hub.client, after=[first])
    assert (await hub.app.jobs.get(second)).status is Status.WAITING
    assert (await run(hub))["job_id"] == first
    await until(lambda: is_in(hub, second, Status.QUEUED))
    assert (await run(hub))["job_id"] == second
    told = [
        job.payload["message"]["type"] for job in (await hub.app.webhooks.deliveries(webhook=hook.webhook.id)).items
    ]
    assert sorted(told) == ["job.completed"] * 2 + ["job.started"] * 2


async def is_in(hub: Served, id: str, status: Status) -> bool:
    return (await hub.app.jobs.get(id)).status is status


async def test_a_report_says_how_long_it_usually_takes(hub: Served) -> None:
    await submitted(hub.client)
    assert (await run(hub, processing_time=3.0))["estimated_processing_time"] is None
    await submitted(hub.client)
    assert (await run(hub))["estimated_processing_time"] == 3.0, "from the first on, before anything is reported"
    token = (await work(hub.client, "register_worker", **ME))["token"]
    await work(hub.client, "heartbeat", token=token)
    hub.hub.fleet.estimates._known.clear()

    async def known() -> bool:
        return hub.hub.fleet.estimates.of("text_to_image") is not None

    await until(known)
    await submitted(hub.client)
    assert (await run(hub))["estimated_processing_time"] > 0


async def test_progress_is_kept_with_its_details(hub: Served) -> None:
    id = await submitted(hub.client)
    given = await work(hub.client, "claim_job", **ME, wait=20)
    details = {"service": "comfyui", "connected": True, "queue_position": 0}
    for percent in (10, 20, 45):
        await work(
            hub.client,
            "update_job_progress",
            lease=given["lease"],
            progress=percent,
            message="x" * 1000,
            current_step="sampling",
            estimated_completion="2030-01-15T10:08:30Z",
            connector_details=details,
        )
    progress = (await hub.app.jobs.get(id)).progress
    assert progress is not None
    assert (progress.percent, progress.step, progress.details) == (45, "sampling", details)
    assert len(progress.message or "") < 600, "it is cut, as that of a handler is"
