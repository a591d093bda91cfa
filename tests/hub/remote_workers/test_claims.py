"""Claims of workers behind a hub: who is given what, and how seldom the store is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from headrace import App, Rate, Status
from headrace.engine.bus import Hint, Topic
from headrace.hub import HubOptions
from headrace.hub.remote_workers import claims
from headrace.hub.server import connections
from tests.hub.live.listening import connected
from tests.hub.remote_workers.working import CAN, said, submitted, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until

MANY = 30

pytestmark = [
    pytest.mark.every_engine,
    pytest.mark.filterwarnings("ignore::headrace.client.api.tasks.UnregisteredTask"),
]


@pytest.fixture(params=["sqlite", "postgres"])
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(url_of(request.param, tmp_path)) as hub:
        yield hub


@pytest.fixture
async def small() -> AsyncIterator[Served]:
    async with serving("memory://") as hub:
        yield hub


@pytest.fixture
async def asked(hub: Served, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The claims that were put to the store."""
    jobs, claims = hub.app.session.engine.jobs, list[Any]()
    claim = jobs.claim

    async def counted(*args: Any) -> Any:
        answer = await claim(*args)
        claims.append(answer)
        return answer

    monkeypatch.setattr(jobs, "claim", counted)
    return claims


async def is_in(hub: Served, id: str, status: Status) -> bool:
    return (await hub.app.jobs.get(id)).status is status


# -- how seldom the store is asked


async def test_one_job_wakes_one_of_many_who_wait(hub: Served, asked: list[Any]) -> None:
    claims = [
        asyncio.create_task(work(hub.client, "claim_job", worker_id=f"w{n}", capabilities=CAN, wait=50))
        for n in range(MANY)
    ]
    await until(lambda: len(hub.hub.fleet.workers) == MANY and all(w.given for w in hub.hub.fleet.workers.values()))
    await until(lambda: not any(line.asking for line in hub.hub.fleet.claims._lines.values()))
    before = len(asked)
    for _ in range(3):
        await submitted(hub.client)
        await until(lambda: sum(claim.done() for claim in claims) == _ + 1)  # noqa: B023 - awaited here
    polls = 3  # should a look without a hint fall into this time
    assert len(asked) - before <= 3 * 4 + polls, "each job costs its claim and those that find nothing more"
    for _ in range(MANY - 3):
        await submitted(hub.client)
    given = await asyncio.gather(*claims)
    assert len({one["job_id"] for one in given}) == MANY


async def test_that_a_worker_has_come_is_no_reason_to_ask_for_those_who_wait(small: Served) -> None:
    claims = small.hub.fleet.claims
    async with asyncio.TaskGroup() as group:
        group.create_task(work(small.client, "claim_job", worker_id="w", capabilities=CAN, wait=50))
        await until(lambda: any(line.waiting and not line.asking for line in claims._lines.values()))
        [line] = claims._lines.values()
        for hint, asks in [
            (Hint(Topic.SETTINGS, ("worker:0198c5a4-7b1e-7cc2-8d4f-5b6a7c8d9e0f",)), False),
            (Hint(Topic.SETTINGS, ("queue:default",)), True),
        ]:
            await until(lambda: line.waiting and not line.asking)
            claims.hinted(hint)
            assert bool(line.asking) is asks
        claims.withdraw_all()


async def test_one_job_is_told_to_few_of_many_who_listen(small: Served) -> None:
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(connected(small)) for _ in range(MANY)]
        for n, socket in enumerate(sockets):
            given = await socket.ask("claim_job", worker_id=f"w{n}", capabilities=CAN)
            assert given["type"] == "no_job"
            assert given["retry_after"] > 0
        id = await submitted(small.client)
        told = Counter[int]()
        hearing = [asyncio.create_task(told_of(socket, n)) for n, socket in enumerate(sockets)]
        done, _ = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED)
        n = done.pop().result()
        told[n] += 1
        given = await sockets[n].ask("claim_job", worker_id=f"w{n}", capabilities=CAN)
        assert given["job_id"] == id
        again = await sockets[n].ask("claim_job", worker_id=f"w{n}", capabilities=CAN, max_concurrent_jobs=2)
        assert again["type"] == "no_job"
        assert not small.hub.fleet.availability._waves, "as there is nothing more, nobody else is told"
        assert sum(task.done() for task in hearing) < MANY / 2
        for task in hearing:
            task.cancel()


async def told_of(socket: Any, n: int) -> int:
    assert (await socket.until("job_available"))["queues"] == ["default"]
    return n


# -- who left


async def test_what_a_client_that_hung_up_was_given_is_given_to_the_next(hub: Served) -> None:
    async with httpx2.AsyncClient(base_url=hub.address, trust_env=False, timeout=1) as client:
        with pytest.raises(httpx2.TimeoutException):
            await work(client, "claim_job", worker_id="gone", capabilities=CAN, wait=50)
    await until(lambda: not any(worker.given for worker in hub.hub.fleet.workers.values()))
    id = await submitted(hub.client)
    given = await work(hub.client, "claim_job", worker_id="here", capabilities=CAN, wait=20)
    assert given["job_id"] == id
    stored = await hub.app.jobs.get(id)
    assert stored.unstarted_losses == 0


async def test_what_was_given_while_the_client_hung_up_is_released_at_once(
    hub: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, asked, go_on = hub.app.session.engine.jobs, asyncio.Event(), asyncio.Event()
    claim = jobs.claim

    async def slow(*args: Any) -> Any:
        answer = await claim(*args)
        asked.set()
        await go_on.wait()
        return answer

    id = await submitted(hub.client)
    monkeypatch.setattr(jobs, "claim", slow)
    async with httpx2.AsyncClient(base_url=hub.address, trust_env=False) as client:
        claiming = asyncio.create_task(work(client, "claim_job", worker_id="gone", capabilities=CAN, wait=50))
        await asyncio.wait_for(asked.wait(), 20)
        assert await is_in(hub, id, Status.ASSIGNED)
        claiming.cancel()
        await asyncio.wait([claiming])
    go_on.set()
    await until(lambda: is_in(hub, id, Status.QUEUED))
    assert (await hub.app.jobs.get(id)).unstarted_losses == 0


async def test_what_was_given_while_the_socket_closed_is_released_at_once(
    hub: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, asked, go_on = hub.app.session.engine.jobs, asyncio.Event(), asyncio.Event()
    claim = jobs.claim

    async def slow(*args: Any) -> Any:
        answer = await claim(*args)
        asked.set()
        await go_on.wait()
        return answer

    id = await submitted(hub.client)
    monkeypatch.setattr(jobs, "claim", slow)
    async with connected(hub) as socket:
        await socket.send("claim_job", worker_id="gone", capabilities=CAN, wait=50)
        await asyncio.wait_for(asked.wait(), 20)
    await until(lambda: not hub.hub.fleet.listening())
    go_on.set()
    await until(lambda: is_in(hub, id, Status.QUEUED))


# -- repeats


async def test_a_claim_that_is_repeated_is_answered_with_the_same_job(hub: Served) -> None:
    for _ in range(2):
        await submitted(hub.client)
    token = (await work(hub.client, "register_worker", worker_id="w", capabilities=CAN))["token"]
    me = {"worker_id": "w", "token": token, "wait": 20}
    first = await work(hub.client, "claim_job", **me, request="one")
    assert await work(hub.client, "claim_job", **me, request="one") == first
    await work(hub.client, "accept_job", lease=first["lease"])
    assert (await work(hub.client, "claim_job", **me, request="one"))["lease"] == first["lease"]


# -- who may be given what


async def test_a_job_that_nobody_can_take_does_not_hold_up_the_others(hub: Served) -> None:
    big = {"requirements": {"service_type": "comfyui", "hardware": {"gpu_memory_gb": 24}}, "priority": 90}
    for _ in range(3):
        await submitted(hub.client, **big)
    id = await submitted(hub.client, priority=10)
    assert (await work(hub.client, "claim_job", worker_id="w", capabilities=CAN, wait=20))["job_id"] == id


async def test_a_worker_without_tasks_is_given_only_what_asks_for_a_service(small: Served) -> None:
    await small.app.submit("plain", {})
    await small.app.submit("headrace.own", {}, requires={"services": "comfyui"})
    assert (await work(small.client, "claim_job", worker_id="w", capabilities=CAN))["type"] == "no_job"
    given = await work(small.client, "claim_job", worker_id="w", tasks=["plain"])
    assert given["job_type"] == "plain"
    for fields in ({"tasks": ["headrace.own"]}, {"queues": ["headrace.webhooks"]}):
        assert (await said(small.client, "claim_job", worker_id="w", **fields)).status_code == 403


async def test_who_has_as_many_as_it_may_is_given_no_more(small: Served) -> None:
    for _ in range(3):
        await submitted(small.client)
    token = (await work(small.client, "register_worker", worker_id="w", capabilities=CAN, max_concurrent_jobs=2))[
        "token"
    ]
    me = {"worker_id": "w", "token": token, "wait": 1}
    given = [await work(small.client, "claim_job", **me) for _ in range(3)]
    assert [one["type"] for one in given] == ["job_assigned", "job_assigned", "no_job"]
    await work(small.client, "complete_job", lease=given[0]["lease"])
    assert (await work(small.client, "claim_job", **me))["type"] == "job_assigned"


async def test_a_key_may_be_bound_to_tasks_and_queues(tmp_path: Path) -> None:
    async with App(url_of("sqlite", tmp_path)) as app:
        key = (await app.keys.create("bound", ["work"], tasks=["one"], queues=["left"])).text
        for task, queue in (("two", "left"), ("one", "right"), ("one", "left")):
            await app.submit(task, {}, queue=queue, requires={"services": "comfyui"})
        async with serving(app) as hub:
            hub.client.headers["authorization"] = f"Bearer {key}"
            given = [await work(hub.client, "claim_job", worker_id="w", capabilities=CAN) for _ in range(2)]
            assert (given[0]["job_type"], given[0]["queue"]) == ("one", "left")
            assert given[1]["type"] == "no_job"
            for fields in ({"tasks": ["two"]}, {"queues": ["right"]}):
                assert (await said(hub.client, "claim_job", worker_id="w", **fields)).status_code == 403


async def test_a_customers_worker_needs_queues_that_keep_customers_apart(tmp_path: Path) -> None:
    async with App(url_of("sqlite", tmp_path)) as app:
        key = (await app.keys.create("acme's", ["work"], customer="acme")).text
        async with serving(app) as hub:
            hub.client.headers["authorization"] = f"Bearer {key}"
            me: dict[str, Any] = {"worker_id": "w", "tasks": ["one"]}
            for queues in ({"queues": ["mixed"]}, {}):  # or any that is set, of which there is none
                answer = await said(hub.client, "claim_job", **me, **queues)
                assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (409, "mixed-queue")
                assert "--by-customer" in answer.json()["detail"]
            await app.queues.set("apart", by_customer=True)
            assert (await work(hub.client, "claim_job", **me))["type"] == "no_job"
            for customer in ("other", "acme"):
                await app.submit("one", {}, queue="apart", customer=customer)
            given = await work(hub.client, "claim_job", **me, wait=20)
            assert (given["customer_id"], given["queue"]) == ("acme", "apart")


async def test_a_key_has_so_many_workers_and_no_more() -> None:
    async with serving("memory://", HubOptions(maintenance=False, webhooks=False, workers_per_key=3)) as hub:
        for n in range(3):
            await work(hub.client, "register_worker", worker_id=f"w{n}")
        answer = await said(hub.client, "register_worker", worker_id="one too many")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
        assert "token" in answer.json()["detail"]


async def test_who_does_not_keep_its_token_leaves_nothing_behind(small: Served) -> None:
    for _ in range(5):
        assert (await work(small.client, "claim_job", worker_id="curl", capabilities=CAN))["type"] == "no_job"
    assert not small.hub.fleet.workers
    assert not [row for row in await small.app.workers.list() if row.alive]
    await submitted(small.client)
    given = await work(small.client, "claim_job", worker_id="curl", capabilities=CAN, wait=20)
    assert (await work(small.client, "heartbeat", token=given["token"]))["registered"] is True


async def test_a_worker_that_says_something_else_of_itself_waits_in_another_line(small: Served) -> None:
    async with connected(small) as socket:
        for wait in (0.2, 0.2):
            await socket.send("claim_job", worker_id="w", capabilities=CAN, max_concurrent_jobs=5, wait=wait)
        await socket.ask("claim_job", worker_id="w", capabilities={"services": ["other"]}, wait=0.2)
        lines = small.hub.fleet.claims._lines
        await until(lambda: len(lines) == 2 and not any(line.waiting for line in lines.values()))


async def test_a_claim_is_compared_with_others_by_what_its_worker_said_with_it(small: Served) -> None:
    async with connected(small) as socket:
        await socket.send("claim_job", worker_id="w", capabilities=CAN, max_concurrent_jobs=5, wait=50)
        lines = small.hub.fleet.claims._lines
        await until(lambda: any(line.waiting for line in lines.values()))
        [line] = lines.values()
        [waiting] = line.waiting
        await socket.ask("claim_job", worker_id="w", capabilities={"services": ["other"]})
        assert waiting.worker.like != line.key
        assert waiting.kind == (line.key, None)


async def test_a_worker_that_was_buried_is_registered_anew_by_its_socket(small: Served) -> None:
    async with connected(small) as socket:
        first = await socket.ask("register_worker", worker_id="w", capabilities=CAN)
        await small.app.session.engine.workers.retire(UUID(first["worker"]))
        id = await submitted(small.client)
        assert (await socket.ask("claim_job", worker_id="w", capabilities=CAN, wait=20))["job_id"] == id
        assert (await small.app.jobs.get(id)).worker not in (None, UUID(first["worker"]))


@pytest.mark.parametrize("in_a_row", [1, 16])
async def test_messages_that_come_at_once_are_those_of_one_worker(
    small: Served, monkeypatch: pytest.MonkeyPatch, in_a_row: int
) -> None:
    monkeypatch.setattr(connections, "_MAX_MESSAGES_IN_A_ROW", in_a_row)
    ids = {await submitted(small.client) for _ in range(3)}
    async with connected(small) as socket:
        me: dict[str, Any] = {"worker_id": "w", "capabilities": CAN, "max_concurrent_jobs": 3}
        await socket.send("register_worker", **me, id=0)
        for n in (1, 2, 3):
            await socket.send("claim_job", **me, wait=20, id=n)
        heard = [await socket.next() for _ in range(4)]
        assert {one["job_id"] for one in heard if one["type"] == "job_assigned"} == ids
        assert len(small.hub.fleet.workers) == 1
        for id in ids:
            assert (await socket.ask("complete_job", worker_id="w", job_id=id))["type"] == "job_completed"
    async with connected(small) as socket:
        for n in (1, 2):  # the first of them registers it
            await socket.send("claim_job", **me, wait=0.3, id=n)
        assert [(await socket.next())["type"] for _ in range(2)] == ["no_job", "no_job"]
        assert sum(worker.link is not None for worker in small.hub.fleet.workers.values()) == 1


async def test_limits_and_rates_hold_for_them_too(small: Served) -> None:
    await small.app.limits.set("text_to_image", max_concurrency=1)
    for _ in range(2):
        await submitted(small.client)
    me: dict[str, Any] = {"worker_id": "w", "capabilities": CAN, "max_concurrent_jobs": 5}
    first = await work(small.client, "claim_job", **me, wait=20)
    assert (await work(small.client, "claim_job", **me, wait=0.5))["type"] == "no_job"
    claiming = asyncio.create_task(work(small.client, "claim_job", **me, wait=50))
    await until(lambda: any(worker.given for worker in small.hub.fleet.workers.values()))
    await work(small.client, "complete_job", lease=first["lease"])
    assert (await claiming)["type"] == "job_assigned", "the slot that came free is for whoever waits"


@pytest.mark.parametrize("late", [True, False])
async def test_what_spent_a_permit_begins_in_time_or_not_at_all(
    small: Served, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """By time that nobody can set back."""
    if late:
        monkeypatch.setattr(claims, "LEAD_SECONDS", 0.0)
    await small.app.rates.set("few", Rate(5, per=3600))
    await small.app.limits.set("text_to_image", rates=["few"])
    id = await submitted(small.client)
    job = await work(small.client, "claim_job", worker_id="w", capabilities=CAN, wait=20)
    monkeypatch.setattr(small.app.host.clock, "now", lambda now=small.app.host.clock.now: now() - timedelta(hours=1))
    answer = await said(small.client, "start_job", lease=job["lease"])
    assert answer.status_code == (409 if late else 200)
    assert (await small.app.jobs.get(id)).status is (Status.QUEUED if late else Status.RUNNING)


async def test_a_permit_is_spent_as_late_as_the_job_may_begin(small: Served) -> None:
    """So that no span has more starts than its rate, wherever in the lead they fall."""
    await small.app.rates.set("few", Rate(1, per=60, kind="sliding"))
    await small.app.limits.set("text_to_image", rates=["few"])
    for _ in range(2):
        await submitted(small.client)
    me: dict[str, Any] = {"worker_id": "w", "capabilities": CAN, "max_concurrent_jobs": 2}
    job = await work(small.client, "claim_job", **me, wait=20)
    assert (await work(small.client, "claim_job", **me))["type"] == "no_job"
    begun = (await small.app.jobs.get(UUID(job["job_id"]))).assigned_at
    assert begun is not None
    [line] = small.hub.fleet.claims._lines.values()
    assert line.next_due is not None
    assert (line.next_due - begun).total_seconds() >= claims.LEAD_SECONDS + 60


async def test_a_job_whose_claim_is_being_answered_counts_once(small: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look finds it at its worker before the answer does."""
    ids = {await submitted(small.client) for _ in range(2)}
    me: dict[str, Any] = {"worker_id": "w", "capabilities": CAN, "max_concurrent_jobs": 2, "wait": 20}
    jobs, written, go = small.app.session.engine.jobs, asyncio.Event(), asyncio.Event()
    claim = jobs.claim

    async def slow(*args: Any) -> Any:
        answer = await claim(*args)
        if not written.is_set():
            written.set()
            await go.wait()
        return answer

    monkeypatch.setattr(jobs, "claim", slow)
    async with connected(small) as socket:
        await socket.send("claim_job", **me, id=1)
        await written.wait()
        await small.hub.fleet.beats.look(*small.hub.fleet.workers.values())
        second = await socket.ask("claim_job", **me)
        go.set()
        first = await socket.next()
        assert {one.get("job_id") for one in (first, second)} == ids
