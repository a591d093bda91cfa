"""Deadlines, silence and cancels of workers behind a hub: what is taken back, and what they hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Status
from headrace.core.lifecycle.loss import lose
from headrace.core.status import Cause, Outcome
from headrace.engine import Hint, Topic
from headrace.hub import HubOptions
from headrace.hub.live import socket as sockets
from tests.hub.live.listening import Socket, connected
from tests.hub.remote_workers.working import CAN, said, submitted, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until

pytestmark = pytest.mark.timeout(120)

ME: dict[str, Any] = {"worker_id": "w"}
QUICK = {"HEADRACE_BEAT": "0.4", "HEADRACE_LEASE": "1.2", "HEADRACE_ACCEPT": "1", "HEADRACE_START": "1"}
OPTIONS = HubOptions(webhooks=False, worker_lease=2.4)


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A hub that sweeps, with short deadlines."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    async with serving(url_of("sqlite", tmp_path), OPTIONS) as hub:
        yield hub


async def joined(hub: Served, **fields: Any) -> str:
    registered = await work(hub.client, "register_worker", **ME, capabilities=CAN, **fields)
    return str(registered["token"])


async def given_to(hub: Served, token: str, **fields: Any) -> dict[str, Any]:
    await submitted(hub.client, **fields)
    return await work(hub.client, "claim_job", **ME, token=token, wait=20)


async def status_of(hub: Served, id: str) -> Status:
    return (await hub.app.jobs.get(id)).status


async def beating(hub: Served, token: str, **fields: Any) -> None:
    """Go on beating, as a worker does."""
    while True:
        await said(hub.client, "heartbeat", token=token, **fields)
        await asyncio.sleep(0.3)


async def test_what_is_not_accepted_in_time_is_taken_back(hub: Served) -> None:
    token = await joined(hub)
    job = await given_to(hub, token)
    alive = asyncio.create_task(beating(hub, token))
    try:
        await until(lambda: is_queued(hub, job["job_id"]))
        late = await said(hub.client, "accept_job", lease=job["lease"])
        assert late.json()["type"].endswith("/stale-job")
        stored = await hub.app.jobs.get(job["job_id"])
        assert (stored.unstarted_losses, stored.attempt, stored.charged) == (1, 0, 0)
    finally:
        alive.cancel()


async def is_queued(hub: Served, id: str) -> bool:
    return await status_of(hub, id) is Status.QUEUED


async def test_who_prepares_has_more_time_to_start(hub: Served) -> None:
    token = await joined(hub)
    job = await given_to(hub, token)
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < began + 2.5:  # longer than to accept and to start together
        heard = await work(hub.client, "prepare_job", lease=job["lease"])
        assert heard["start_by"] is not None
        await asyncio.sleep(0.2)
    assert await status_of(hub, job["job_id"]) is Status.ACCEPTED
    assert (await work(hub.client, "start_job", lease=job["lease"]))["attempt"] == 1


async def test_a_worker_that_falls_silent_is_buried_and_told_so(hub: Served) -> None:
    token = await joined(hub)
    job = await given_to(hub, token, retry_delays=[0])
    await work(hub.client, "start_job", lease=job["lease"])
    await until(lambda: lost(hub, job["job_id"]))
    late = await said(hub.client, "complete_job", lease=job["lease"], result=1)
    assert late.json()["type"].endswith("/stale-job")
    heard = await said(hub.client, "heartbeat", token=token, held=[job["job_id"]])
    if heard.status_code == 200:
        assert (heard.json()["lost"], heard.json()["registered"]) == ([job["job_id"]], False)
    else:
        assert heard.json()["type"].endswith("/worker-gone")
    assert (await said(hub.client, "claim_job", **ME, token=token)).status_code == 410
    again = await work(hub.client, "claim_job", **ME, token=await joined(hub), wait=20)
    assert (again["job_id"], again["attempt"]) == (job["job_id"], 2)


async def lost(hub: Served, id: str) -> bool:
    return any(one.outcome is Outcome.LOST for one in (await hub.app.jobs.history(id)).attempts)


async def test_progress_is_a_sign_of_life(hub: Served) -> None:
    token = await joined(hub)
    job = await given_to(hub, token)
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < began + 2 * OPTIONS.worker_lease:
        await work(hub.client, "update_job_progress", lease=job["lease"], progress=50)
        await asyncio.sleep(0.3)
    assert (await work(hub.client, "complete_job", lease=job["lease"]))["status"] == "completed"
    assert len((await hub.app.jobs.history(job["job_id"])).attempts) == 1


async def test_a_job_that_two_heartbeats_do_not_name_is_lost(hub: Served) -> None:
    token = await joined(hub)
    job = await given_to(hub, token, retry_delays=[60])
    await work(hub.client, "start_job", lease=job["lease"])
    alive = asyncio.create_task(beating(hub, token, held=[]))
    try:
        await until(lambda: lost(hub, job["job_id"]))
    finally:
        alive.cancel()
    heard = await work(hub.client, "heartbeat", token=token, held=[job["job_id"]])
    assert (heard["lost"], heard["registered"]) == ([job["job_id"]], True)


async def test_without_a_list_all_that_it_was_given_is_its_own(hub: Served) -> None:
    token = await joined(hub)
    job = await given_to(hub, token)
    await work(hub.client, "start_job", lease=job["lease"])
    alive = asyncio.create_task(beating(hub, token))
    try:
        before = (await hub.app.workers.list())[0].beats
        await until(lambda: has_beaten(hub, before + 8))
    finally:
        alive.cancel()
    assert (await work(hub.client, "complete_job", lease=job["lease"]))["status"] == "completed"


async def has_beaten(hub: Served, beats: int) -> bool:
    return (await hub.app.workers.list())[0].beats > beats


# -- cancels


@pytest.fixture
async def calm(tmp_path: Path) -> AsyncIterator[Served]:
    """A hub with the usual deadlines."""
    async with serving(url_of("sqlite", tmp_path), HubOptions(webhooks=False)) as hub:
        yield hub


async def held(hub: Served, socket: Socket, *messages: str, **fields: Any) -> str:
    """A job that a worker at this socket has, after these messages."""
    id = await submitted(hub.client, **fields)
    assert (await socket.ask("claim_job", **ME, capabilities=CAN, wait=20))["job_id"] == id
    for message in messages:
        assert (await socket.ask(message, **ME, job_id=id))["type"] != "error"
    return id


async def test_a_cancel_of_what_was_offered_ends_it(calm: Served) -> None:
    async with connected(calm) as socket:
        id = await held(calm, socket)
        await calm.app.jobs.handle(id).cancel()
        assert await status_of(calm, id) is Status.CANCELLED
        assert (await socket.ask("accept_job", **ME, job_id=id))["type"] == "stale_job"


@pytest.mark.parametrize("messages", [["accept_job"], ["accept_job", "start_job"]])
@pytest.mark.parametrize(
    ("answer", "fields", "status"),
    [
        ("release_job", {}, Status.CANCELLED),
        ("fail_job", {"error": "stopped", "retry": True}, Status.CANCELLED),
        ("snooze_job", {"delay": 5}, Status.CANCELLED),
        ("complete_job", {"result": "too late to cancel"}, Status.COMPLETED),
    ],
)
async def test_a_cancel_is_told_and_ends_as_the_lifecycle_says(
    calm: Served, messages: list[str], answer: str, fields: dict[str, Any], status: Status
) -> None:
    async with connected(calm) as socket:
        id = await held(calm, socket, *messages)
        await calm.app.jobs.handle(id).cancel()
        assert await socket.until("cancel_job", job_id=id) == {
            "type": "cancel_job",
            "job_id": id,
            "reason": "cancelled",
        }
        if answer == "fail_job":
            heard = await socket.ask("update_job_progress", **ME, job_id=id, progress=9)
            assert (heard["cancel"], heard["reason"]) == (True, "cancelled")
        assert (await socket.ask(answer, **ME, job_id=id, **fields))["type"] != "error"
        assert await status_of(calm, id) is status


async def test_a_hint_that_names_no_job_keeps_no_cancel_from_being_told(calm: Served) -> None:
    async with connected(calm) as socket:
        id = await held(calm, socket, "accept_job", "start_job")
        calm.app.session.engine.bus.send(Hint(Topic.CANCEL, ("no job", id)))
        await calm.app.jobs.handle(id).cancel()
        assert (await socket.until("cancel_job", job_id=id))["reason"] == "cancelled"


async def test_over_http_a_cancel_is_told_with_the_heartbeat(calm: Served) -> None:
    token = await joined(calm)
    job = await given_to(calm, token)
    await work(calm.client, "start_job", lease=job["lease"])
    await calm.app.jobs.handle(job["job_id"]).cancel()
    assert (await work(calm.client, "heartbeat", token=token))["cancel"] == [job["job_id"]]


async def test_that_time_is_over_is_told(calm: Served) -> None:
    async with connected(calm) as socket:
        timeout = {"requirements": {"service_type": "comfyui", "timeout_minutes": 0.01}}
        id = await held(calm, socket, "accept_job", "start_job", **timeout, retry_delays=[60])
        assert (await socket.until("cancel_job", job_id=id))["reason"] == "timeout"
        failed = await socket.ask("fail_job", **ME, job_id=id, error="stopped")
        assert failed["status"] == "retrying"
        [attempt] = (await calm.app.jobs.history(id)).attempts
        assert attempt.outcome is Outcome.TIMED_OUT


async def test_what_the_sweeper_ended_is_no_longer_the_workers(calm: Served) -> None:
    token = await joined(calm)
    job = await given_to(calm, token, retry_delays=[60])
    await work(calm.client, "start_job", lease=job["lease"])
    stored = await calm.app.jobs.get(job["job_id"])
    rules, now = calm.app.session.engine.rules, calm.app.host.clock.now()
    await calm.app.session.writer.apply(lose(stored, Cause.TIMEOUT, now, 0.0, rules))
    for message, fields in (("fail_job", {"error": "late"}), ("complete_job", {}), ("release_job", {})):
        late = await said(calm.client, message, lease=job["lease"], **fields)
        assert late.json()["type"].endswith("/stale-job"), message
    [attempt] = (await calm.app.jobs.history(job["job_id"])).attempts
    assert attempt.outcome is Outcome.TIMED_OUT


async def test_a_worker_that_registers_again_leaves_nothing_behind(calm: Served) -> None:
    async with connected(calm) as socket:
        first = await socket.ask("register_worker", **ME, capabilities=CAN)
        second = await socket.ask("register_worker", **ME, capabilities=CAN)
        assert first["worker"] != second["worker"], "two machines may have one name"
        assert [str(worker.id) for worker in calm.hub.fleet.workers.values()] == [second["worker"]]
        assert [str(row.info.id) for row in await calm.app.workers.list() if row.alive] == [second["worker"]]


# -- hubs that stop, sockets that idle


async def test_a_hub_that_stops_leaves_its_workers_alive(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    async with serving(url) as other:
        async with serving(url) as one, connected(one) as socket:
            token = (await socket.ask("register_worker", **ME, capabilities=CAN))["token"]
            id = await held(one, socket, "start_job")
            one.server.stop()
            assert (await socket.until("error"))["problem"]["type"].endswith("/draining")
            assert await socket.closed() == 1012
        assert [row.alive for row in await other.app.workers.list()] == [True]
        async with connected(other) as socket:
            await socket.ask("register_worker", **ME, capabilities=CAN, token=token)
            assert (await socket.ask("complete_job", **ME, job_id=id))["type"] == "job_completed"


async def test_a_hub_that_stops_answers_who_waits(tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        token = await joined(hub)
        claiming = asyncio.create_task(work(hub.client, "claim_job", **ME, token=token, wait=55))
        await until(lambda: any(worker.given for worker in hub.hub.fleet.workers.values()))
        hub.server.stop()
        async with asyncio.timeout(20):
            assert (await claiming)["type"] == "no_job"


async def test_an_idle_socket_is_closed_unless_it_has_a_job(calm: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "IDLE_SECONDS", 0.3)
    async with connected(calm) as busy, connected(calm) as idle:
        id = await held(calm, busy)
        await idle.ask("register_worker", worker_id="idle", capabilities=CAN)
        assert await idle.closed() == 1000
        assert (await busy.ask("accept_job", **ME, job_id=id))["type"] == "job_accepted"
