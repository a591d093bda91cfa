"""The worker that delivers: from a submit to a message that the public library believes, on every engine."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook

from headrace import App, Status
from headrace.core.defaults import MAX_WEBHOOK_FAILURES
from headrace.core.job import Job
from headrace.core.webhooks.delivery import QUEUE, TASK
from headrace.errors import Unavailable
from headrace.hub import HubOptions
from headrace.hub.webhooks import delivery, webhook_worker
from headrace.hub.webhooks.delivery import _MAX_OPEN_DELIVERIES, _MAX_RECEIVER_DELIVERIES, OFF
from tests.hub.webhooks.receiving import Names, Receiver, receiving
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until

OPTIONS = HubOptions(webhook_allow=("127.0.0.0/8",), webhook_http=True)


@asynccontextmanager
async def delivering(app: App, options: HubOptions = OPTIONS) -> AsyncIterator[Names]:
    names = Names(["127.0.0.1"])
    async with webhook_worker(app, options, resolver=names):
        yield names


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


@pytest.fixture
async def quick() -> AsyncIterator[Sums]:
    made = Sums("memory://")
    async with made.app:
        yield made


def url(receiver: Receiver) -> str:
    return f"http://hooks.example:{receiver.port}/jobs"


def types(receiver: Receiver) -> list[str]:
    return [msgspec.json.decode(one.body)["type"] for one in receiver.requests]


async def ended(app: App, *, count: int = 1) -> list[Job]:
    """All deliveries, once so many have ended."""
    await until(lambda: _ended(app, count))
    return list((await app.webhooks.deliveries()).items)


async def _ended(app: App, count: int) -> bool:
    return sum(one.ended for one in (await app.webhooks.deliveries()).items) >= count


async def test_a_job_is_told_of_in_order_and_signed(sums: Sums) -> None:
    app = sums.app
    async with receiving() as receiver, delivering(app), app.worker():
        made = await app.webhooks.add(url(receiver), events=["status_change", "progress"], bearer="tok")
        job = await sums.multiply.submit(2, 3)
        await until(lambda: len(receiver.requests) >= 4)
        assert types(receiver) == ["job.submitted", "job.started", "job.progress", "job.completed"]
        for request in receiver.requests:
            message = Webhook(made.secret).verify(request.body, request.headers)
            assert message["data"]["job_id"] == str(job.id)
            assert request.headers["authorization"] == "Bearer tok"
            assert request.headers["content-type"] == "application/json"
        assert msgspec.json.decode(receiver.requests[3].body)["data"]["result"] == 6
        found = await ended(app, count=4)
        assert (await app.store.verify()).ok
    assert {one.status for one in found} == {Status.COMPLETED}
    assert {one.result["status"] for one in found} == {204}
    ids = {request.headers["webhook-id"] for request in receiver.requests}
    assert ids == {one.payload["id"] for one in found}
    assert len(ids) == 4


async def test_one_that_fails_holds_back_the_next_of_its_job_and_no_other(sums: Sums) -> None:
    app = sums.app
    async with receiving("500 Oops") as broken, receiving() as fine, delivering(app):
        await app.webhooks.add(url(broken), events=["status_change"])
        await app.webhooks.add(url(fine), events=["status_change"])
        job = await sums.add.submit(1)
        await app.jobs.handle(job.id).cancel()
        await until(lambda: len(fine.requests) == 2)
        await until(lambda: len(broken.requests) >= 1)
        assert set(types(broken)) == {"job.submitted"}, "the end is not told before the beginning"
        broken.answers = ["204 Fine"]
        await until(lambda: types(broken)[-1] == "job.cancelled")
        first = broken.requests[0].headers["webhook-id"]
        assert broken.requests[-2].headers["webhook-id"] == first, "a retry is the same message"


async def test_the_page_of_the_seed_verbatim(quick: Sums) -> None:
    app = quick.app
    async with receiving() as receiver, delivering(app), app.worker():
        asked: dict[str, Any] = {
            "webhook_url": url(receiver),
            "events": ["status_change", "progress", "completion"],
            "authentication": {"type": "bearer_token", "token": "client-webhook-token"},
        }
        await quick.add.options(webhook=asked, customer="customer-123").submit(1)
        await until(lambda: len(receiver.requests) == 3)
    assert types(receiver) == ["job.submitted", "job.started", "job.completed"]
    assert {one.headers["authorization"] for one in receiver.requests} == {"Bearer client-webhook-token"}
    assert "webhook-signature" not in receiver.requests[0].headers


async def test_no_customer_finds_out_which_private_names_there_are(
    sums: Sums, caplog: pytest.LogCaptureFixture
) -> None:
    app = sums.app
    caplog.set_level(logging.INFO, "headrace.webhooks")

    async def names(host: str, port: int) -> list[str]:
        if host == "db.internal":
            return ["10.0.0.7"]
        if host == "empty.internal":
            return []
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    hosts = ("db.internal", "empty.internal", "nowhere.internal")
    async with webhook_worker(app, HubOptions(webhook_http=True), resolver=names):
        for host in hosts:
            made = await app.webhooks.add(f"http://{host}/x", events=["status_change"], customer="acme")
            await app.webhooks.test(made.webhook.id)

        async def tried() -> bool:
            return all(one.attempt == 1 and one.error is not None for one in (await app.webhooks.deliveries()).items)

        await until(tried)
        found = (await app.webhooks.deliveries()).items
        assert len(found) == len(hosts)
        told = {(one.status, one.reason, one.error and (one.error.type, one.error.message)) for one in found}
        assert len(told) == 1, told
        assert "is not known, or leads where webhooks may not go" in str(told)
    assert "db.internal: 10.0.0.7 is a private or special address" in caplog.text, "the operator is told"


async def test_a_private_address_is_given_up_at_once_and_says_how_to_allow_it(quick: Sums) -> None:
    app = quick.app
    async with receiving() as receiver, delivering(app, HubOptions(webhook_http=True)):
        await app.webhooks.add(url(receiver), events=["submitted"])
        await quick.add.submit(1)
        [delivery] = await ended(app)
        assert (delivery.status, delivery.attempt) == (Status.FAILED, 1)
        assert delivery.error is not None
        assert "--webhook-allow" in delivery.error.message
        assert receiver.connections == 0
        assert (await app.webhooks.list())[0].failures == 1


async def test_nothing_is_sent_to_one_that_is_removed(quick: Sums) -> None:
    app = quick.app
    async with receiving() as receiver:
        hook = (await app.webhooks.add(url(receiver), events=["submitted"])).webhook.id
        await quick.add.submit(1)
        await app.webhooks.delete(hook)
        async with delivering(app):
            [delivery] = await ended(app)
            assert delivery.status is Status.FAILED
            assert delivery.error is not None
            assert "removed" in delivery.error.message
            assert receiver.connections == 0


async def test_what_is_for_one_that_is_off_is_cancelled_until_it_is_on_again(sums: Sums) -> None:
    app = sums.app
    async with receiving() as receiver:
        hook = (await app.webhooks.add(url(receiver), events=["submitted"])).webhook.id
        await sums.add.submit(1)
        await app.webhooks.set(hook, on=False)
        async with delivering(app):
            [delivery] = await ended(app)
            assert delivery.status is Status.CANCELLED, "nothing is broken: no dead letter"
            assert (await app.webhooks.list())[0].failures == 0
            [act] = (await app.jobs.history(delivery.id)).events
            assert (act.verb, act.by) == ("cancel", OFF)
            assert receiver.connections == 0
            await app.webhooks.test(hook)
            await until(lambda: types(receiver) == ["webhook.test"])
            await app.webhooks.set(hook, on=True)
            await app.webhooks.redeliver(delivery.id)
            await until(lambda: types(receiver)[1:] == ["job.submitted"])


async def test_a_slow_receiver_takes_its_share_and_no_more(sums: Sums) -> None:
    app = sums.app
    async with receiving() as slow, receiving() as fine:
        slow.silent = True
        await app.webhooks.add(url(slow), events=["submitted"])
        for number in range(3 * _MAX_OPEN_DELIVERIES):
            await sums.add.submit(number)
        await app.webhooks.add(url(fine), events=["submitted"])
        await sums.add.submit(0)
        async with delivering(app):
            await until(lambda: slow.open == _MAX_RECEIVER_DELIVERIES)
            await until(lambda: len(fine.requests) == 1)
            assert slow.most_open == _MAX_RECEIVER_DELIVERIES
            await _give_up(app)


async def test_the_receivers_of_one_customer_take_one_share(quick: Sums) -> None:
    app = quick.app
    async with receiving() as slow, receiving() as fine:
        slow.silent = True
        for _ in range(3):
            await app.webhooks.add(url(slow), events=["submitted"], customer="a")
        await app.webhooks.add(url(fine), events=["submitted"], customer="b")
        for number in range(_MAX_OPEN_DELIVERIES):
            await quick.add.options(customer="a").submit(number)
        await quick.add.options(customer="b").submit(0)
        async with delivering(app):
            await until(lambda: slow.open == _MAX_RECEIVER_DELIVERIES)
            await until(lambda: len(fine.requests) == 1)
            assert slow.most_open == _MAX_RECEIVER_DELIVERIES
            await _give_up(app)


async def test_who_floods_waits_in_turn_with_all_others(sums: Sums) -> None:
    app = sums.app
    async with receiving() as flooded, receiving() as fine, receiving() as own:
        fine.requests = own.requests = flooded.requests  # in the order in which they came
        await app.webhooks.add(url(flooded), events=["submitted"], customer="a")
        await sums.add.options(customer="a").map([(number,) for number in range(300)])
        # Behind all of those, by another customer and by the operator.
        await app.webhooks.add(url(fine), events=["submitted"], customer="b")
        await sums.add.options(customer="b").map([(number,) for number in range(10)])
        await app.webhooks.add(url(own), events=["submitted"])
        await sums.add.map([(number,) for number in range(10)])
        async with delivering(app):
            await until(lambda: len(flooded.requests) == 320)  # none is left out
        ports = [int(one.headers["host"].partition(":")[2]) for one in flooded.requests]
        last = max(place for place, port in enumerate(ports) if port != flooded.port)
        # As many of the flood as of each other key, and those that were on their way.
        assert ports[:last].count(flooded.port) <= 2 * _MAX_OPEN_DELIVERIES


async def _give_up(app: App) -> None:
    """Cancel what is under way, so that nobody waits for it at the end."""
    await app.queues.pause(QUEUE)
    async for _ in app.jobs.where(task=TASK).cancel():
        pass


async def test_many_that_fail_together_say_why_and_are_not_tried_again(sums: Sums) -> None:
    app = sums.app
    made = await app.webhooks.add("http://hooks.example/jobs", events=["submitted"])
    for number in range(30):
        await sums.add.submit(number)
    async with delivering(app, HubOptions()):
        found = await ended(app, count=30)
    assert {one.attempt for one in found} == {1}
    assert len([one for one in found if one.status is Status.FAILED]) >= MAX_WEBHOOK_FAILURES
    assert {one.status for one in found if not one.error} <= {Status.CANCELLED}, "when it is switched off"
    assert all("--webhook-http" in one.error.message for one in found if one.error)
    assert not (await app.webhooks.get(made.webhook.id)).on


async def test_what_cannot_be_noted_decides_nothing(quick: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*noted: object, **more: object) -> None:
        raise Unavailable("the store is away")

    app = quick.app
    monkeypatch.setattr(delivery, "note_delivered", away)
    monkeypatch.setattr(delivery, "note_undelivered", away)
    async with receiving() as receiver, delivering(app):
        await app.webhooks.add(url(receiver), events=["submitted"])
        await quick.add.submit(1)
        (taken,) = await ended(app)
        assert (taken.status, taken.attempt, len(receiver.requests)) == (Status.COMPLETED, 1, 1), "it is not sent again"
    async with delivering(app, HubOptions()):
        await quick.add.submit(2)
        refused = max(await ended(app, count=2), key=lambda one: one.created_at)
    assert refused.error is not None
    assert (refused.status, refused.attempt) == (Status.FAILED, 1)
    assert "--webhook-http" in refused.error.message


async def test_gone_is_gone(quick: Sums) -> None:
    app = quick.app
    async with receiving("410 Gone") as receiver, delivering(app):
        hook = (await app.webhooks.add(url(receiver), events=["submitted"])).webhook.id
        await quick.add.submit(1)
        [delivery] = await ended(app)
        assert delivery.attempt == 1
        assert not (await app.webhooks.get(hook)).on


async def test_the_last_attempt_that_fails_counts_against_the_subscription(quick: Sums) -> None:
    app = quick.app
    async with receiving("500 Oops") as receiver, delivering(app):
        hook = (await app.webhooks.add(url(receiver), events=["submitted"])).webhook.id
        await quick.add.submit(1)
        await until(lambda: _tried_out(app))
        [delivery] = (await app.webhooks.deliveries()).items
        assert (delivery.status, delivery.attempt, len(receiver.requests)) == (Status.FAILED, 8, 8)
        assert len({one.headers["webhook-id"] for one in receiver.requests}) == 1
        assert (await app.webhooks.get(hook)).failures == 1
        receiver.answers = ["200 OK"]
        await app.webhooks.redeliver(delivery.id)
        await until(lambda: _status(app, delivery, Status.COMPLETED))
        assert (await app.webhooks.get(hook)).failures == 0


async def _tried_out(app: App) -> bool:
    [delivery] = (await app.webhooks.deliveries()).items
    if delivery.status is Status.RETRYING:
        await app.jobs.handle(delivery.id).run_now()
    return delivery.ended


async def _status(app: App, job: Job, status: Status) -> bool:
    return (await app.jobs.get(job.id)).status is status


async def test_a_rerun_with_another_payload_reaches_nobody_elses_webhook(quick: Sums) -> None:
    app = quick.app
    async with receiving() as mine, receiving() as theirs, delivering(app):
        await app.webhooks.add(url(mine), customer="a", events=["submitted"])
        other = (await app.webhooks.add(url(theirs), customer="b", events=["submitted"])).webhook.id
        await quick.add.options(customer="a").submit(1)
        [delivery] = await ended(app)
        forged = await app.jobs.handle(delivery.id).rerun(payload={**delivery.payload, "webhook": other})
        await until(lambda: _status(app, forged.last, Status.FAILED) if forged.last else False)
        assert theirs.connections == 0


async def _serves_deliveries(app: App) -> bool:
    return [row.info.tasks for row in await app.workers.list() if row.info.queues] == [(TASK,)]


async def test_a_worker_of_the_users_own_takes_no_deliveries(quick: Sums) -> None:
    app = quick.app
    await app.webhooks.add("http://hooks.example/", events=["submitted"])
    async with app.worker():
        await (await quick.add.submit(1)).result(timeout=20)
        assert [one.status for one in (await app.webhooks.deliveries()).items] == [Status.QUEUED]
        [row] = await app.workers.list()
        assert TASK not in row.info.tasks
        async with delivering(app):
            await until(lambda: _serves_deliveries(app))
