"""The numbers of the EmProps page: deadlines, heartbeats, priorities and positions, on a clock that is moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.hub.live import socket as sockets
from tests.coming_from.stage import Stage, Worker, staged
from tests.hub import page
from tests.hub.live.listening import connected
from tests.support.apps import url_of

on_both = pytest.mark.parametrize("engine", ["sqlite", "postgres"])

SHOWN = {"queued", "assigned", "accepted", "in_progress", "completed", "failed", "timeout", "cancelled"}
"""Every status of its table but ``pending``, in lower case as in its JSON."""

SUBMIT: dict[str, Any] = json.loads(page.SUBMIT)
RETRY: dict[str, Any] = json.loads(page.RETRY)
CLAIM: dict[str, Any] = json.loads(page.CLAIM)
SLACK = 10.0
"""Seconds in which a worker may say itself that the time is over."""
MINUTE = 60.0


async def renderer(stage: Stage, name: str = "render-03") -> Worker:
    """The worker of the page."""
    said = {field: CLAIM[field] for field in ("capabilities", "max_concurrent_jobs")}
    return await stage.worker(name, **said)


async def started(stage: Stage, worker: Worker, **more: Any) -> str:
    """The job of the page, which the worker has begun; its id."""
    id = await stage.submit(**SUBMIT | RETRY | more)
    assert await worker.given() == id
    await stage.status(id)
    await worker.says("accept_job")
    await stage.status(id)
    await worker.says("update_job_progress", progress=0)
    assert await stage.status(id) == "in_progress"
    return id


@pytest.mark.every_engine
@on_both
async def test_every_status_is_shown_and_found(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "emprops") as stage:
        worker = await renderer(stage)
        done = await started(stage, worker)
        await worker.says("complete_job", result={"success": True})
        failed = await started(stage, worker)
        await worker.says("fail_job", error="no such scene", error_details={"error_type": "InvalidJobParameters"})
        slow = await started(stage, worker, max_retries=0, retry_delays=[5])
        await stage.changes_after(slow, MINUTE, "started_at", late=SLACK)
        dropped = await stage.submit(**SUBMIT)
        assert (await stage.act(dropped, "cancel"))["status"] == "cancelled"

        ends = {done: "completed", failed: "failed", slow: "timeout", dropped: "cancelled"}
        assert {id: await stage.status(id) for id in ends} == ends
        assert stage.seen == SHOWN
        for id, word in ends.items():
            wanted = {failed, slow} if word == "failed" else {id}
            assert await stage.found(word.upper()) == await stage.found(word) == wanted
        both = await stage.hub.client.get("/api/jobs", params={"words": "emprops", "status": ["TIMEOUT", "QUEUED"]})
        assert both.status_code == 400


@pytest.mark.every_engine
@on_both
async def test_a_worker_must_accept_within_thirty_seconds(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "emprops") as stage:
        worker = await renderer(stage)
        id = await stage.submit(**SUBMIT)
        await worker.given()
        assert worker.job["claim_timeout"] == 30_000
        await stage.changes_after(id, 30, "assigned_at")
        job = await stage.job(id)
        assert (job["status"], job["charged"]) == ("queued", 0)
        await worker.says_late("accept_job")


@pytest.mark.every_engine
@on_both
async def test_a_job_of_which_nothing_is_heard_for_sixty_seconds_has_timed_out(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "emprops") as stage:
        worker = await renderer(stage)
        id = await started(stage, worker)
        for percent in range(10, 60, 10):
            await stage.passes(50)
            await worker.says("update_job_progress", progress=percent)
        assert await stage.status(id) == "in_progress", "it was heard of every 50 s, for four minutes"
        await stage.passes(MINUTE - 5)
        assert await stage.status(id) == "in_progress"
        await stage.passes(5 + SLACK + 2)
        assert await stage.status(id) == "queued", "its worker lives, and says so; that is no sign of the job"
        [attempt] = await stage.attempts(id)
        assert attempt["outcome"] == "timed_out"
        assert (await stage.job(id))["charged"] == 1
        await worker.says_late("update_job_progress", progress=60)
        await stage.jumps(5)  # the first of its delays: the conditions are about errors, and a time-out is none
        assert await worker.given() == id, "its slot is free"


@pytest.mark.every_engine
@on_both
@pytest.mark.parametrize("minutes", [15, 30])
async def test_an_attempt_may_take_as_long_as_the_job_says_or_thirty_minutes(
    minutes: int, engine: str, tmp_path: Path
) -> None:
    wanted = dict(SUBMIT["requirements"])
    if minutes == 30:
        del wanted["timeout_minutes"]
    async with staged(url_of(engine, tmp_path), "emprops") as stage:
        worker = await renderer(stage)
        id = await started(stage, worker, requirements=wanted, heartbeat=3600)
        await stage.jumps((minutes - 1) * MINUTE)
        await stage.changes_after(id, minutes * MINUTE, "started_at", late=SLACK)
        [attempt] = await stage.attempts(id)
        assert attempt["outcome"] == "timed_out"


@pytest.mark.every_engine
@on_both
async def test_a_time_out_is_retried_unless_the_job_says_that_it_is_not(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "emprops") as stage:
        worker = await renderer(stage)
        retried = await started(stage, worker, heartbeat=3)
        await stage.changes_after(retried, 3, "started_at", late=SLACK)
        assert await stage.status(retried) == "queued", "its conditions name errors, and a time-out is none"
        await stage.act(retried, "cancel")
        named = RETRY["no_retry_conditions"]
        ended = await started(stage, worker, heartbeat=3, no_retry_conditions=[*named, "TimeoutError"])
        await stage.changes_after(ended, 3, "started_at", late=SLACK)
        job = await stage.job(ended)
        assert (job["status"], job["reason"], job["attempt"]) == ("timeout", "timeout", 1)


@pytest.mark.every_engine
@on_both
async def test_strictly_by_priority_and_then_by_arrival(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "emprops") as stage:
        ids, positions = list[str](), list[int]()
        for priority in (50, 50, 75, 75, 90, "high"):  # "high" is 80
            answer = await stage.post("/api/jobs", SUBMIT | {"priority": priority})
            assert answer.json()["estimated_start"] is None, "nothing is known yet"
            ids.append(answer.json()["job_id"])
            positions.append(answer.json()["position"])
            stage.clock.advance(MINUTE)  # a hub spends little of its time on reading positions
        assert positions == [1, 2, 1, 2, 1, 2]
        first, *_ = ids
        await stage.jumps(3600)  # however old a job is, those of a higher priority go first
        worker = await stage.worker("render-03", capabilities=CLAIM["capabilities"], max_concurrent_jobs=6)
        order = [ids[4], ids[5], ids[2], ids[3], first, ids[1]]
        assert [await worker.given() for _ in ids] == order


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_socket_is_closed_after_five_idle_minutes(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sockets.IDLE_SECONDS == 5 * MINUTE
    monkeypatch.setattr(sockets, "IDLE_SECONDS", 0.3)
    async with staged(url_of(engine, tmp_path), "emprops") as stage, connected(stage.hub) as idle:
        assert (await idle.ask("ping"))["type"] == "pong"
        assert await idle.closed() == 1000
