"""What a worker adds to its job: each is kept once, however often it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from headrace.core.defaults import MAX_LOG_LINES
from headrace.core.entry import Kind
from tests.hub.remote_workers.working import CAN, said, submitted, work
from tests.hub.serving import Served, serving
from tests.support.hostile import HUGE

HOW = {"max_retries": 3, "retry_delays": [0]}


@pytest.fixture
async def hub() -> AsyncIterator[Served]:
    async with serving("memory://") as hub:
        yield hub


async def running(hub: Served, **fields: Any) -> dict[str, Any]:
    """A job that was started."""
    await submitted(hub.client, **fields)
    return await again(hub)


async def again(hub: Served) -> dict[str, Any]:
    given = await work(hub.client, "claim_job", worker_id="w", capabilities=CAN, wait=20)
    assert given["type"] == "job_assigned"
    return given


async def test_lines_are_kept_once(hub: Served) -> None:
    job = await running(hub)
    lines = [{"message": f"line {n}", "level": "WARNING"} for n in (1, 2, 3)]
    for first, some in ((1, lines[:2]), (2, lines[1:]), (1, lines)):
        heard = await work(hub.client, "job_log", lease=job["lease"], first=first, lines=some)
        assert heard["next"] == first + len(some)
    kept = [line async for line in hub.app.jobs.logs(job["job_id"])]
    assert [(one.number, one.level, one.logger, one.message) for one in kept] == [
        (n, "WARNING", "worker", f"line {n}") for n in (1, 2, 3)
    ]


async def test_the_log_of_an_attempt_is_bounded(hub: Served) -> None:
    job = await running(hub)
    for first in (1, 501, 1001):
        lines = [{"message": "again"}] * 500
        heard = await work(hub.client, "job_log", lease=job["lease"], first=first, lines=lines)
    assert heard["dropped"] == 500
    kept = [line async for line in hub.app.jobs.logs(job["job_id"])]
    assert len(kept) == MAX_LOG_LINES + 1
    assert "not kept" in kept[-1].message


async def test_items_of_a_later_attempt_replace_those_before_or_go_on_behind_them(hub: Served) -> None:
    job = await running(hub, **HOW)

    async def items() -> list[Any]:
        answer = await hub.client.get(f"/api/jobs/{job['job_id']}/items")
        return [one["value"] for one in answer.json()["items"]]

    for _ in range(2):
        assert (await work(hub.client, "job_items", lease=job["lease"], first=1, items=["a", {"b": 1}]))["next"] == 3
    assert await items() == ["a", {"b": 1}]
    await work(hub.client, "fail_job", lease=job["lease"], error="no")
    job = await again(hub)
    assert job["items"] == 2
    await work(hub.client, "job_items", lease=job["lease"], first=3, items=["c"])
    assert await items() == ["a", {"b": 1}, "c"]
    await work(hub.client, "fail_job", lease=job["lease"], error="no")
    job = await again(hub)
    await work(hub.client, "job_items", lease=job["lease"], first=1, items=["anew"])
    stored = await hub.app.session.engine.entries.tail(UUID(job["job_id"]), Kind.ITEM)
    assert [(one.attempt, one.number) for one in stored][-2:] == [(3, 0), (3, 1)], "it says that it begins anew"


async def test_a_step_is_done_once(hub: Served) -> None:
    job = await running(hub, **HOW)
    step = {"name": "download"}
    heard = await work(hub.client, "job_step", lease=job["lease"], **step)
    assert (heard["found"], heard["result"]) == (False, None)
    for result in ({"file": 1}, {"file": 2}):
        heard = await work(hub.client, "job_step", lease=job["lease"], **step, result=result)
        assert (heard["found"], heard["result"]) == (True, {"file": 1}), "the first one counts"
    await work(hub.client, "job_step", lease=job["lease"], name="other", result=None)
    await work(hub.client, "fail_job", lease=job["lease"], error="no")
    job = await again(hub)
    assert (await work(hub.client, "job_step", lease=job["lease"], **step))["result"] == {"file": 1}
    other = await work(hub.client, "job_step", lease=job["lease"], name="other")
    assert (other["found"], other["result"]) == (True, None)


async def test_a_child_is_submitted_once_and_is_of_the_same_customer(hub: Served) -> None:
    job = await running(hub, customer_id="acme", **HOW)
    child = {"child": {"task": "resize", "payload": {"image": "cat.png"}}}
    made = await work(hub.client, "submit_child", lease=job["lease"], **child)
    assert made["duplicate"] is False
    again_ = await work(hub.client, "submit_child", lease=job["lease"], **child)
    assert (again_["child_id"], again_["duplicate"]) == (made["child_id"], True)
    second = await work(hub.client, "submit_child", lease=job["lease"], number=1, **child)
    assert second["child_id"] != made["child_id"]
    stored = await hub.app.jobs.get(made["child_id"])
    assert (str(stored.parent), str(stored.root), stored.customer) == (job["job_id"], job["job_id"], "acme")
    other = {"child": {**child["child"], "customer": "somebody"}}
    assert (await said(hub.client, "submit_child", lease=job["lease"], **other)).status_code == 403
    await work(hub.client, "fail_job", lease=job["lease"], error="no")
    job = await again(hub)
    later = await work(hub.client, "submit_child", lease=job["lease"], **child)
    assert later["child_id"] == made["child_id"], "the next attempt finds it again"


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("job_log", {"first": 1, "lines": [{"message": "x"}]}),
        ("job_items", {"first": 1, "items": [1]}),
        ("job_step", {"name": "x", "result": 1}),
        ("submit_child", {"child": {"task": "resize"}}),
        ("update_job_progress", {"progress": 5}),
    ],
)
async def test_what_is_late_is_not_kept(hub: Served, message: str, fields: dict[str, Any]) -> None:
    job = await running(hub)
    await work(hub.client, "release_job", lease=job["lease"])
    answer = await said(hub.client, message, lease=job["lease"], **fields)
    assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (409, "stale-job")


@pytest.mark.parametrize(
    ("message", "fields", "status"),
    [
        ("complete_job", {"result": "x" * 1_100_000}, 422),
        ("job_items", {"first": 1, "items": ["x" * 1_100_000]}, 422),
        ("job_step", {"name": "big", "result": "x" * 1_100_000}, 422),
        ("update_job_progress", {"progress": 5, "connector_details": {"x": "y" * 17_000}}, 400),
        ("update_job_progress", {"progress": 5, "connector_details": {"x": [{"y": HUGE}]}}, 400),
        ("update_job_progress", {"progress": 5, "connector_details": {"x": 2**53 + 1}}, 400),
        ("update_job_progress", {"progress": 101}, 400),
        ("submit_child", {"child": {"task": "resize", "payload": {"x": "y" * 140_000}}}, 413),
        ("job_log", {"first": 0, "lines": [{"message": "x"}]}, 400),
    ],
)
async def test_what_is_too_large_is_refused(hub: Served, message: str, fields: dict[str, Any], status: int) -> None:
    job = await running(hub)
    assert (await said(hub.client, message, lease=job["lease"], **fields)).status_code == status
