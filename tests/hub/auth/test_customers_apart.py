"""Customers kept apart, on every operation of the table: what is Bob's does not exist for Alice.

Each operation says how it is bounded, and is proved by that. What has no proof here fails: whoever adds an operation, a
parameter or a kind of bound says how it keeps customers apart.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest

from headrace.hub.live.messages import MESSAGES, Message
from headrace.hub.operations import ENGINE, OPERATIONS
from headrace.hub.server.operation import Bounded, Operation
from headrace.testing import FakeClock
from tests.hub.customers import ALICE, BOB, Scene, scene
from tests.hub.live.listening import Socket, connected
from tests.hub.remote_workers.of_customers import lease_of_bob, ready_for_work, token_of_bob
from tests.hub.walking import Heard, ask, open_stream
from tests.support.apps import url_of

pytestmark = pytest.mark.every_engine

Faults = AsyncIterator[str]
Proof = Callable[[Scene, Operation], Faults]


# -- what one would learn


def tells_of_bob(scene: Scene, heard: Heard) -> set[str]:
    said = f"{heard.text}{dict(heard.headers)}"
    return {trace for trace in scene.bob.traces if trace in said}


async def differs(scene: Scene, operation: Operation, of_bob: object, of_nobody: object, **more: Any) -> Faults:
    """Whether Alice hears something else of what is Bob's than of what is not there."""
    told = {}
    for name in (of_bob, of_nobody):
        heard = await ask(scene.hub, operation, scene.alice.key, id=name, **more)
        told[name] = heard.without(name)
        if heard.status not in (404, 410):
            yield f"{name}: {heard.status}, not 404 or 410"
    if told[of_bob] != told[of_nobody]:
        yield f"of Bob's {told[of_bob]}, of nobody's {told[of_nobody]}"


def alike(id: UUID, scene: Scene) -> UUID:
    """An id of the same age that nobody has."""
    return scene.app.host.new_id(datetime.fromtimestamp((id.int >> 80) / 1000, UTC))


async def is_served(scene: Scene, operation: Operation, **parts: Any) -> Faults:
    """Whether Alice is answered about her own: else it would prove nothing that she is refused Bob's."""
    heard = await ask(scene.hub, operation, scene.alice.key, **parts)
    if heard.status >= 500 or heard.status in (401, 403, 404, 410):
        yield f"of her own: {heard.status} {heard.text}"
    if traces := tells_of_bob(scene, heard):
        yield f"of her own, it tells of {traces}"


# -- how each kind is proved


async def job(scene: Scene, operation: Operation) -> Faults:
    for what, id in scene.bob.jobs.items():
        for headers in ({}, {"if-none-match": "*"}):
            async for fault in differs(scene, operation, id, alike(id, scene), headers=headers):
                yield f"{what}: {fault}"
    for id in scene.alice.jobs.values():
        async for fault in is_served(scene, operation, id=id):
            yield fault


async def batch(scene: Scene, operation: Operation) -> Faults:
    assert scene.bob.batch is not None
    async for fault in differs(scene, operation, scene.bob.batch, alike(scene.bob.batch, scene)):
        yield fault
    async for fault in is_served(scene, operation, id=scene.alice.batch):
        yield fault


async def operator(scene: Scene, operation: Operation) -> Faults:
    heard = await ask(scene.hub, operation, scene.alice.key)
    if heard.status != 403 or tells_of_bob(scene, heard):
        yield f"{heard}"


async def nothing(scene: Scene, operation: Operation) -> Faults:
    heard = await ask(scene.hub, operation, scene.alice.key)
    if heard.status in (401, 403) or heard.status >= 500:
        yield f"{heard}"
    if traces := tells_of_bob(scene, heard):
        yield f"it tells of {traces}"


HARMLESS = frozenset(
    [
        "status",
        "reason",
        "limit",
        "cursor",
        "suspect",
        "created_after",
        "created_before",
        "finished_after",
        "finished_before",
        "task",
        "type",
    ]
)
"""Parameters of searches that name nothing of anybody's: both customers have jobs of the same tasks."""


NAMED: dict[str, Callable[[Scene], object]] = {
    **dict.fromkeys(("customer", "customer_id", "tag", "text", "schedule"), lambda scene: BOB),
    "queue": lambda scene: f"queue-of-{BOB}",
    "parent": lambda scene: scene.bob.jobs["running"],
    "root": lambda scene: scene.bob.jobs["running"],
    "batch": lambda scene: scene.bob.batch,
    "rerun_of": lambda scene: scene.bob.jobs["failed"],
    "worker": lambda scene: scene.worker,
    "fingerprint": lambda scene: scene.bob.fingerprint,
}
"""What of Bob's the other parameters may name."""

OF_DELIVERIES: dict[str, Callable[[Scene], object]] = {
    "webhook": lambda scene: scene.bob.webhook,
    "job": lambda scene: scene.bob.jobs["completed"],
}
"""The same of parameters that no filter of jobs has."""


async def found(scene: Scene, operation: Operation) -> Faults:
    if operation.method != "GET":
        async for fault in BY_HAND[operation.name](scene, operation):
            yield fault
        return
    async for fault in is_served(scene, operation):
        yield fault
    for name in set(_parameters(operation)) - HARMLESS:
        of_bob = (NAMED | OF_DELIVERIES)[name](scene)
        of_nobody = scene.app.host.new_id() if isinstance(of_bob, UUID) else "nobody"
        told = [
            (await ask(scene.hub, operation, scene.alice.key, query={name: str(value)})).without(value)
            for value in (of_bob, of_nobody)
        ]
        if told[0] != told[1] or told[0][0] not in (200, 403):
            yield f"{name}: of Bob's {told[0]}, of nobody's {told[1]}"


def _parameters(operation: Operation) -> Iterable[str]:
    return () if operation.query is None else operation.query.__struct_encode_fields__


# -- what is submitted

MAY_NAME = frozenset(["customer", "customer_id", "after", "dedup", "request_key", "idempotency_key", "concurrency_key"])
"""Fields of a submit that may name something of Bob's; ``submits`` tries each of them."""
NAMES_NOTHING = frozenset(
    [
        "task",
        "type",
        "payload",
        "queue",
        "priority",
        "heartbeat",
        "remote_heartbeat",
        "delay",
        "not_before",
        "not_after",
        "dedup_for",
        "on_duplicate",
        "retry",
        "timeout",
        "retention",
        "tags",
        "metadata",
        "requires",
        "after_when",
        "on_parent_failure",
        "trace",
        "webhook",
        "requirements",
        "max_retries",
        "retry_delays",
        "retry_conditions",
        "no_retry_conditions",
        "webhook_url",
        "events",
        "authentication",
    ]
)
"""All others."""


async def submits(scene: Scene, operation: Operation) -> Faults:
    queued, nobody = scene.bob.jobs["queued"], alike(scene.bob.jobs["queued"], scene)
    for field, of_bob, of_nobody in (("customer", BOB, "nobody"), ("customer_id", BOB, "nobody")):
        told = [await _submit(scene, operation, {field: value}) for value in (of_bob, of_nobody)]
        if not told[0].text.count('"status":403') or told[0].without(of_bob) != told[1].without(of_nobody):
            yield f"{field}: {told}"
    told = [await _submit(scene, operation, {"after": [str(id)]}) for id in (queued, nobody)]
    if not told[0].text.count('"status":404') or told[0].without(queued) != told[1].without(nobody):
        yield f"after: {told}"
    key = scene.bob.keys
    of_request = {"idempotency_key": key} if operation.name == "submit_jobs" else {"request_key": key}
    for fields in (
        {},
        {"dedup": key},
        {"dedup": key, "on_duplicate": "replace"},
        {"concurrency_key": key},
        of_request,
    ):
        heard = await _submit(scene, operation, fields)
        made = re.findall(r'"job_id":"([^"]+)"', heard.text)
        if len(made) != 1 or UUID(made[0]) in scene.bob.jobs.values():
            yield f"{fields}: {heard}"
        elif (await scene.app.jobs.get(made[0])).customer != ALICE:
            yield f"{fields}: the job is not hers"
        if traces := tells_of_bob(scene, heard):
            yield f"{fields}: it tells of {traces}"


async def _submit(scene: Scene, operation: Operation, fields: dict[str, Any]) -> Heard:
    body = {"task": "quick", "payload": {"note": "of Alice"}, **fields}
    return await ask(
        scene.hub, operation, scene.alice.key, body={"jobs": [body]} if operation.name == "submit_jobs" else body
    )


# -- what acts on all that it finds


ALL = {"created_after": "2000-01-01T00:00:00Z"}
"""An act on many needs a filter; this one lets everything pass."""


async def act_on_jobs(scene: Scene, operation: Operation) -> Faults:
    async def told_of(**filter: Any) -> Heard:
        body = {"act": "cancel", "filter": filter, "dry_run": True}
        return await ask(scene.hub, operation, scene.alice.key, body=body)

    for name, value in NAMED.items():
        of_bob = value(scene)
        of_nobody = scene.app.host.new_id() if isinstance(of_bob, UUID) else "nobody"
        told = [(await told_of(**{name: str(one)})).without(one) for one in (of_bob, of_nobody)]
        if told[0] != told[1] or told[0][0] not in (200, 403):
            yield f"{name}: of Bob's {told[0]}, of nobody's {told[1]}"
    count = await scene.app.jobs.where(customer=ALICE).preview("cancel")
    if (heard := await told_of(**ALL)).text != f'{{"count":{count}}}':
        yield f"she has {count} jobs that can be cancelled, and it counts {heard.text}"
    for one in OPERATIONS:
        if one.path.startswith("/api/jobs/{id}/") and one.scope == "act":
            body = {**(one.example or {}), "act": one.path.rpartition("/")[2], "filter": ALL}
            heard = await ask(scene.hub, operation, scene.alice.key, body=body)
            if heard.status != 200 or tells_of_bob(scene, heard):
                yield f"{one.name}: {heard}"


# -- what is told live


async def feed(scene: Scene, operation: Operation) -> Faults:
    for customer in (BOB, "nobody"):
        heard = await ask(scene.hub, operation, scene.alice.key, query={"customer": customer})
        if heard.status != 403:
            yield f"customer={customer}: {heard}"
    async with open_stream(scene.hub, operation, scene.alice.key) as lines:
        said, hers = "", set[str]()
        while not any(id in said for id in hers):
            for whose in (scene.bob, scene.alice):
                made = await scene.app.submit("quick", {"note": whose.name}, customer=whose.name)
                whose.jobs[f"number {len(hers)}"] = made.id
            hers.add(str(made.id))
            async with asyncio.timeout(30):
                said += await anext(lines)
        if traces := {trace for trace in scene.bob.traces if trace in said}:
            yield f"it tells of {traces}"


async def add_webhook(scene: Scene, operation: Operation) -> Faults:
    async def told_of(**fields: Any) -> Heard:
        body = {"url": "https://hooks.example/of-alice", **fields}
        return await ask(scene.hub, operation, scene.alice.key, body=body)

    told = [(await told_of(customer=name)).without(name) for name in (BOB, "nobody")]
    if told[0] != told[1] or told[0][0] != 403:
        yield f"customer: {told}"
    heard = await told_of()
    if heard.status != 201 or tells_of_bob(scene, heard) or f'"customer":"{ALICE}"' not in heard.text:
        yield f"{heard}"
    made = await scene.app.submit("quick", {"note": BOB}, customer=BOB)
    if (await scene.app.webhooks.deliveries(job=made.id)).items:
        yield "hers is told of his job"


BY_HAND: dict[str, Proof] = {
    "add_webhook": add_webhook,
    "submit_job": submits,
    "submit_jobs": submits,
    "act_on_jobs": act_on_jobs,
    "feed": feed,
}
"""The proofs of operations that make, tell, or act on what they find: each has one of its own, by its name."""


async def webhook(scene: Scene, operation: Operation) -> Faults:
    nobody = f"wh_{'0' * (len(scene.bob.webhook) - 3)}"
    async for fault in differs(scene, operation, scene.bob.webhook, nobody):
        yield fault
    async for fault in is_served(scene, operation, id=scene.alice.webhook):
        yield fault


async def leased(scene: Scene, operation: Operation) -> Faults:
    """A lease of somebody else's key is none."""
    given = await lease_of_bob(scene)
    told = []
    for lease in (given["lease"], "hrl.0.0.0"):
        heard = await ask(scene.hub, operation, scene.alice.key, body={**operation.example, "lease": lease})
        told.append(heard.without(lease))
        if heard.status != 409 or tells_of_bob(scene, heard):
            yield f"{heard}"
    if told[0] != told[1]:
        yield f"of Bob's {told[0]}, of nobody's {told[1]}"


async def offered(scene: Scene, operation: Operation) -> Faults:
    """She is offered no job but her own, and is no worker of Bob's."""
    queue, token = await ready_for_work(scene), await token_of_bob(scene)
    me = {"worker_id": "alice"}
    heard = await ask(scene.hub, operation, scene.alice.key, body={**me, "token": token})
    if heard.status != 409 or tells_of_bob(scene, heard):
        yield f"with his token: {heard}"
    if operation.name == "claim_job":
        body = {**me, "tasks": ["quick", "hold"], "queues": [queue]}
        count = 0
        while "job_assigned" in (heard := await ask(scene.hub, operation, scene.alice.key, body=body)).text:
            count += 1
            if tells_of_bob(scene, heard):
                yield f"{heard}"
        if heard.status != 200 or "no_job" not in heard.text or not count:
            yield f"{heard}"


PROOFS: dict[Bounded, Proof] = {
    "offered": offered,
    "leased": leased,
    "job": job,
    "batch": batch,
    "webhook": webhook,
    "found": found,
    "operator": operator,
    "nothing": nothing,
}


# -- messages of a socket


def as_alice(scene: Scene) -> AbstractAsyncContextManager[Socket]:
    """A socket of Alice's."""
    return connected(scene.hub, additional_headers={"authorization": f"Bearer {scene.alice.key}"})


async def one_job(scene: Scene, message: Message, socket: Socket) -> Faults:
    for what, id in scene.bob.jobs.items():
        told = []
        for name in (id, alike(id, scene)):
            answer = json.dumps(await socket.ask(message.name, job_id=str(name)))
            told.append(answer.replace(str(name), "…"))
        if told[0] != told[1] or '"status": 404' not in told[0]:
            yield f"{what}: of Bob's {told[0]}, of nobody's {told[1]}"
    for id in scene.alice.jobs.values():
        heard = await socket.ask(message.name, job_id=str(id))
        if heard["type"] == "error" or _traces(scene, json.dumps(heard)):
            yield f"of her own: {heard}"


async def refuses_customers(scene: Scene, message: Message, socket: Socket) -> Faults:
    answer = await socket.ask(message.name, **message.example)
    if answer["type"] != "error" or answer["problem"]["status"] != 403:
        yield f"{answer}"


async def tells_nothing(scene: Scene, message: Message, socket: Socket) -> Faults:
    example = {**message.example, "job_id": str(scene.bob.jobs["queued"])} if "job_id" in message.example else {}
    answer = json.dumps(await socket.ask(message.name, **example)).replace(example.get("job_id", "…"), "…")
    if traces := _traces(scene, answer):
        yield f"it tells of {traces}"


def _traces(scene: Scene, said: str) -> set[str]:
    return {trace for trace in scene.bob.traces if trace in said}


OF_MESSAGES: dict[Bounded, Callable[[Scene, Message, Socket], Faults]] = {
    "offered": tells_nothing,  # ``live/test_messages.py`` looks at what workers are given, and by which lease
    "leased": tells_nothing,
    "job": one_job,
    "batch": tells_nothing,
    "operator": refuses_customers,
    "nothing": tells_nothing,
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_messages_keep_customers_apart(kind: str, tmp_path: Path) -> None:
    wrong = list[str]()
    async with scene(url_of(kind, tmp_path)) as both:
        for message in MESSAGES:
            async with as_alice(both) as socket:
                proof = OF_MESSAGES[message.bounded]
                wrong += [f"{message.name}: {fault}" async for fault in proof(both, message, socket)]
    assert not wrong, "\n\n".join(wrong)


async def test_a_socket_is_told_nothing_of_bobs_jobs(tmp_path: Path) -> None:
    async with scene(url_of("sqlite", tmp_path)) as both, as_alice(both) as socket:
        for id in both.bob.jobs.values():
            await socket.ask("subscribe_job", job_id=str(id))
        await socket.ask("subscribe_job", job_id=str(both.alice.jobs["queued"]))
        for whose in (both.bob, both.alice):
            await both.app.jobs.handle(whose.jobs["queued"]).cancel()
        said = ""
        while '"cancelled"' not in said:
            said += json.dumps(await socket.next())
        assert not _traces(both, said)


def test_everything_has_a_proof() -> None:
    assert set(get_args(Bounded)) - set(PROOFS) == {"made", "told"}
    assert {message.bounded for message in MESSAGES} <= set(OF_MESSAGES)
    for operation in (*OPERATIONS, *ENGINE):
        by_hand = operation.bounded not in PROOFS or (operation.bounded == "found" and operation.method != "GET")
        assert not by_hand or operation.name in BY_HAND, f"say how {operation.name} keeps customers apart"
        if operation.bounded == "found":
            unknown = set(_parameters(operation)) - HARMLESS - set(NAMED) - set(OF_DELIVERIES)
            assert not unknown, f"say what of Bob's {unknown} of {operation.name} may name"
        if operation.name == "submit_job":
            unknown = set(operation.body.__struct_encode_fields__) - MAY_NAME - NAMES_NOTHING
            assert not unknown, f"say whether {unknown} of a submit may name something of Bob's"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_what_is_bobs_does_not_exist_for_alice(kind: str, tmp_path: Path) -> None:
    wrong = list[str]()
    async with scene(url_of(kind, tmp_path)) as both:
        before = await both.jobs_of_bob()
        for operation in (*OPERATIONS, *ENGINE):
            proof = PROOFS.get(operation.bounded) or BY_HAND[operation.name]
            wrong += [f"{operation.name}: {fault}" async for fault in proof(both, operation)]
        assert (await both.jobs_of_bob())[: len(before)] == before, "behind these are what the feed told of"
    assert not wrong, "\n\n".join(wrong)


async def test_what_is_old_is_gone_whosever_it_is(tmp_path: Path) -> None:
    clock, wrong = FakeClock(), list[str]()
    async with scene(url_of("sqlite", tmp_path), clock=clock) as both:
        clock.advance(days=400)
        id = both.bob.jobs["queued"]
        for operation in (one for one in OPERATIONS if one.bounded == "job"):
            async for fault in differs(both, operation, id, alike(id, both)):
                wrong.append(f"{operation.name}: {fault}")
            heard = await ask(both.hub, operation, both.alice.key, id=id)
            if heard.status != 410:
                wrong.append(f"{operation.name}: {heard}")
    assert wrong == []
