"""The table of messages, walked through: each needs its scope, and keeps customers apart by what it says of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import App
from headrace.core.auth.api_keys import SCOPES
from headrace.hub.live.messages import MESSAGES, Message
from headrace.hub.server.operation import Bounded
from tests.hub.customers import Scene, scene
from tests.hub.live.listening import Socket, connected
from tests.hub.remote_workers.of_customers import lease_of_bob, ready_for_work, token_of_bob
from tests.hub.serving import serving
from tests.support.apps import url_of

pytestmark = pytest.mark.every_engine

Proof = Callable[[Scene, Message, Socket], AsyncIterator[str]]


def bearer(key: str) -> dict[str, Any]:
    return {"additional_headers": {"authorization": f"Bearer {key}"}}


def fields_of(message: Message, **parts: Any) -> dict[str, Any]:
    return {**message.example, **parts}


# -- customers


async def job(both: Scene, message: Message, socket: Socket) -> AsyncIterator[str]:
    """Somebody else's is answered like nobody's."""
    for what, id in both.bob.jobs.items():
        nobody = both.app.host.new_id()
        told = []
        for one in (id, nobody):
            answer = await socket.ask(message.name, **fields_of(message, job_id=str(one)))
            told.append(str(answer).replace(str(one), "…"))
            if answer["type"] != "error" or answer["problem"]["status"] not in (404, 410):
                yield f"{what}: {answer}"
        if told[0] != told[1]:
            yield f"{what}: of Bob's {told[0]}, of nobody's {told[1]}"
    for id in both.alice.jobs.values():
        if (await socket.ask(message.name, **fields_of(message, job_id=str(id))))["type"] == "error":
            yield f"she is not told of her own {id}"


async def batch(both: Scene, message: Message, socket: Socket) -> AsyncIterator[str]:
    told = []
    for id in (both.bob.batch, both.app.host.new_id()):
        answer = await socket.ask(message.name, **fields_of(message, batch_id=str(id)))
        told.append(str(answer).replace(str(id), "…"))
        if answer["type"] != "error" or answer["problem"]["status"] != 404:
            yield f"{answer}"
    if told[0] != told[1]:
        yield f"of Bob's {told[0]}, of nobody's {told[1]}"
    if (await socket.ask(message.name, **fields_of(message, batch_id=str(both.alice.batch))))["type"] == "error":
        yield "she is not told of her own"


async def operator(both: Scene, message: Message, socket: Socket) -> AsyncIterator[str]:
    answer = await socket.ask(message.name, **fields_of(message))
    if answer["type"] != "error" or answer["problem"]["status"] != 403:
        yield f"{answer}"


async def nothing(both: Scene, message: Message, socket: Socket) -> AsyncIterator[str]:
    for id in both.bob.jobs.values():
        parts = {"job_id": str(id)} if "job_id" in message.example else {}
        answer = await socket.ask(message.name, **fields_of(message, **parts))
        if any(trace in str(answer).replace(str(id), "…") for trace in both.bob.traces):
            yield f"{answer}"


async def leased(both: Scene, message: Message, socket: Socket) -> AsyncIterator[str]:
    """A lease of somebody else's key is none; without one, nobody's job is hers."""
    given = await lease_of_bob(both)
    for fields in ({"lease": given["lease"]}, {"lease": "hrl.0.0.0"}, {"job_id": given["job_id"]}):
        sent = {name: value for name, value in message.example.items() if name != "lease"} | fields
        answer = await socket.ask(message.name, **sent)
        refused = answer["type"] == "stale_job" or answer.get("problem", {}).get("status") == 409
        if not refused or any(trace in str(answer) for trace in both.bob.traces):
            yield f"{fields}: {answer}"


async def offered(both: Scene, message: Message, socket: Socket) -> AsyncIterator[str]:
    """She is offered no job but her own."""
    queue = await ready_for_work(both)
    claim = {"worker_id": "alice", "tasks": ["quick", "hold"], "queues": [queue], "max_concurrent_jobs": 1000}
    count = 0
    while (answer := await socket.ask("claim_job", **claim))["type"] == "job_assigned":
        count += 1
        if answer["customer_id"] != both.alice.name:
            yield f"{answer}"
    if answer["type"] != "no_job" or not count:
        yield f"{answer}"
    token = await token_of_bob(both)
    for message_name in ("register_worker", "claim_job", "heartbeat"):
        answer = await socket.ask(message_name, worker_id="bob", token=token)
        if answer["type"] != "error" or answer["problem"]["status"] != 409:
            yield f"{message_name}: {answer}"


PROOFS: dict[Bounded, Proof] = {
    "offered": offered,
    "leased": leased,
    "job": job,
    "batch": batch,
    "operator": operator,
    "nothing": nothing,
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_what_is_bobs_does_not_exist_for_alice(kind: str, tmp_path: Path) -> None:
    wrong = list[str]()
    async with scene(url_of(kind, tmp_path)) as both:
        for message in (one for one in MESSAGES if one.name != "authenticate"):
            async with connected(both.hub, **bearer(both.alice.key)) as socket:
                proof = PROOFS[message.bounded]
                wrong += [f"{message.name}: {fault}" async for fault in proof(both, message, socket)]
    assert wrong == []


# -- scopes


async def test_every_message_needs_its_scope(tmp_path: Path) -> None:
    app, wrong = App(url_of("sqlite", tmp_path)), list[str]()
    async with app:
        keys = {scope: (await app.keys.create(f"may-{scope}", [scope])).text for scope in SCOPES if scope != "engine"}
    async with serving(app) as hub:
        for scope, key in [(None, None), *keys.items()]:
            for message in (one for one in MESSAGES if one.name != "authenticate"):
                async with connected(hub, **({} if key is None else bearer(key))) as socket:
                    answer = await socket.ask(message.name, **fields_of(message))
                refused = answer["type"] == "error" and answer["problem"]["status"] in (401, 403)
                if refused is (message.scope is None or message.scope == scope):
                    wrong.append(f"{message.name} with {scope}: {answer}")
    assert wrong == []


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_its_example_is_one(message: Message) -> None:
    assert msgspec.convert(dict(message.example), message.takes)
    assert message.summary
