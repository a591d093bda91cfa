"""The OpenAPI document: it is one, it has an example for everything, and the examples work."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx2
import msgspec
import pytest
import schemathesis

from headrace import App, Status
from headrace.core.limits.rate import Rate
from headrace.core.schedule.rules import Cron
from headrace.hub import HubOptions
from headrace.hub.openapi import document as openapi
from headrace.hub.openapi.document import document, problems_of
from headrace.hub.operations import OPERATIONS
from headrace.hub.server.operation import Operation
from tests.hub.api.world import small_app
from tests.hub.openapi.documented import DOCUMENT, contents_of, refuse
from tests.hub.remote_workers.working import example_of
from tests.hub.serving import Served, serving
from tests.support.until import until

BY_NAME = {one.name: one for one in OPERATIONS}
STREAMS = {one.name for one in OPERATIONS if "text/event-stream" in one.gives.values()}


def test_it_is_an_openapi_document() -> None:
    schemathesis.openapi.from_dict(copy.deepcopy(DOCUMENT)).validate()
    broken = copy.deepcopy(DOCUMENT)
    broken["paths"]["/api/version"]["get"]["responses"] = []
    with pytest.raises(Exception, match="responses"):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_operation_is_in_it_once() -> None:
    assert len(BY_NAME) == len(OPERATIONS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)
    assert sum(len(methods) for methods in DOCUMENT["paths"].values()) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=BY_NAME)
def test_every_operation_has_examples_that_are_as_it_says(operation: Operation) -> None:
    said = contents_of(operation)
    for parameter in said.get("parameters", ()):
        if parameter["in"] == "path":
            refuse(parameter["schema"], parameter["example"], parameter["name"])
    if "requestBody" in said:
        for media, content in said["requestBody"]["content"].items():
            assert "example" in content, media
            refuse(content["schema"], content["example"], media)
    examples = 0
    for status, answer in said["responses"].items():
        for media, content in answer.get("content", {}).items():
            if "example" in content:
                examples += 1
                refuse(content["schema"], content["example"], f"{status} {media}")
    wanted = any(kind is not None for kind in operation.gives.values())
    assert bool(examples) == wanted, "its answer has no example"


def test_components_have_plain_and_unique_names() -> None:
    components = DOCUMENT["components"]
    schemas, text = components["schemas"], msgspec.json.encode(DOCUMENT).decode()
    assert [name for name in schemas if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name)] == []
    assert len({name.lower() for name in schemas}) == len(schemas)  # some clients have a file for each
    assert {name: schema["title"] for name, schema in schemas.items()} == {name: name for name in schemas}
    named = set(re.findall(r'"#/components/([^"]*)"', text))
    there = {f"{kind}/{name}" for kind in ("schemas", "responses") for name in components[kind]}
    assert named == there


def test_what_may_hold_anything_says_so() -> None:
    """Generators of clients take it for a slip, or for empty, else."""
    for schema in _parts(DOCUMENT["components"]["schemas"]):
        if schema.get("type") == "array":
            assert {"items", "prefixItems"} & set(schema), schema
        if schema.get("type") == "object":
            assert {"properties", "additionalProperties"} & set(schema), schema
        if "anyOf" in schema:
            assert schema.get("default") != [], "a client would send it as a text"


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(one)


def test_every_problem_has_an_example() -> None:
    for name, answer in DOCUMENT["components"]["responses"].items():
        content = answer["content"]["application/problem+json"]
        refuse(content["schema"], content["example"], name)
        assert name == f"Problem{content['example']['status']}"


def test_fields_are_described_by_what_the_sources_say_of_them() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["QueueSettings"]["properties"]["priority"]["description"].startswith("A queue with a higher number")
    assert schemas["EveryRule"]["properties"]["overlap"]["description"].startswith("What a fire does while")


def test_a_hub_with_keys_says_that_it_needs_them() -> None:
    keyed, open_one = document(OPERATIONS, keyed=True), document(OPERATIONS, keyed=False)
    assert keyed["paths"]["/api/version"]["get"]["security"] == [{"key": []}]
    assert "security" not in keyed["paths"]["/openapi.json"]["get"]
    assert "security" not in str(open_one["paths"])
    assert "securitySchemes" not in open_one["components"]


async def test_it_is_served_and_says_where_a_proxy_has_put_it(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db", HubOptions(root_path="/queue")) as hub:
        found = (await hub.client.get("/openapi.json")).json()
        assert found["servers"] == [{"url": "/queue"}]
        assert set(found["paths"]) == set(DOCUMENT["paths"])


async def test_others_are_answered_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, answered = Event(), Event()

    def slow(*operations: object, **options: object) -> dict[str, object]:
        begun.set()
        return {"waited": answered.wait(10)}

    monkeypatch.setattr("headrace.hub.openapi.document.document", slow)
    openapi._made.cache_clear()
    try:
        async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
            making = [asyncio.create_task(hub.client.get("/openapi.json")) for _ in range(2)]
            await until(begun.is_set)
            assert (await hub.client.get("/api/version")).status_code == 200
            answered.set()
            assert [(await one).json() for one in making] == [{"waited": True}] * 2
    finally:
        openapi._made.cache_clear()


def test_it_says_where_the_socket_is() -> None:
    assert "`/ws`" in DOCUMENT["info"]["description"]


# -- the examples, on a hub


class Things:
    """What the examples name: it is there before each of them is tried."""

    def __init__(self, hub: Served) -> None:
        self.hub, self.app = hub, hub.app

    async def prepare(self) -> None:
        """Bring back what another example has removed."""
        app = self.app
        await app.queues.set("images", priority=10)
        await app.limits.set("resize", max_concurrency=5)
        await app.rates.set("stripe", Rate(100, per=60))
        draft = await app.draft("resize", {"image": "cat.png"})
        await app.schedules.set("nightly", Cron("0 2 * * *"), draft)

    async def id_for(self, operation: Operation) -> str:
        """Something that the path may name, in a state in which it can be done."""
        kind = operation.path.split("/")[2]
        if kind == "batches":
            async with self.app.batch() as batch:
                batch.add(await self.app.draft("resize", {"image": "cat.png"}))
            return str(batch.id)
        if kind == "workers":
            [worker] = self.app.workers.local.all()
            await until(lambda: worker.healthy)
            return str(worker.id)
        if kind == "gone-workers":
            async with self.app.worker() as worker:
                await until(lambda: worker.healthy)
                return str(worker.id)
        if kind == "webhooks":
            hook = (await self.app.webhooks.add("https://hooks.example/", events=["failed"])).webhook.id
            if operation.name != "redeliver":
                return hook
            delivery = await self.app.webhooks.test(hook)
            await self.app.jobs.handle(delivery.id).resolve(error="as asked")
            return str(delivery.id)
        return str(await self._job(operation.name))

    async def _job(self, name: str) -> UUID:
        task, payload = ("fail", {"why": "as asked"}) if name in _FAILED else ("resize", {"image": "cat.png"})
        delay = 3600 if name == "run_now_job" else 0
        job = await self.app.submit(task, payload, delay=delay)
        if name in _FAILED | _ENDED:
            async with self.app.worker(concurrency=1, queues=["default", "images"]):
                await until(lambda: _ended(self.app, job.id))
        return job.id


_FAILED = {"retry_job", "discard_job"}
_ENDED = {"rerun_job", "get_result"}


async def _ended(app: App, id: UUID) -> bool:
    return (await app.jobs.get(id)).status in (Status.COMPLETED, Status.FAILED)


async def _asked(things: Things, operation: Operation) -> httpx2.Response:
    await things.prepare()
    path = operation.path
    for name in re.findall(r"\{(\w+)", operation.path):
        value = await things.id_for(operation) if name == "id" else str(operation.path_examples[name])
        path = re.sub(rf"\{{{name}(:\w+)?\}}", quote(value, safe=""), path)
    body: dict[str, Any] = {} if operation.example is None else {"json": operation.example}
    if operation.scope == "work":
        body = {"json": await example_of(things.hub.client, operation.example)}
    return await things.hub.client.request(operation.method, path, **body)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.name not in STREAMS], ids=lambda one: one.name)
async def test_every_example_works(operation: Operation, tmp_path: Path) -> None:
    app = small_app(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    async with app:
        key = await app.keys.create("ops", ["read", "submit", "work", "act", "admin"])
        if operation.name == "revoke_key":
            await app.keys.create(operation.path_examples["name"], ["read"])
    async with serving(app) as hub:
        hub.client.headers["Authorization"] = f"Bearer {key.text}"
        things = Things(hub)
        if operation.path.startswith("/api/workers/"):
            async with hub.app.worker():
                answer = await _asked(things, operation)
        else:
            answer = await _asked(things, operation)
        assert answer.status_code in operation.gives, answer.text
        said = contents_of(operation)["responses"][str(answer.status_code)]
        media = answer.headers.get("content-type", "").partition(";")[0]
        if operation.gives[answer.status_code] is None:
            assert answer.content == b""
        elif media == "application/json":
            refuse(said["content"][media]["schema"], answer.json(), operation.name)
        else:
            assert media in said["content"]


async def test_problems_are_answered_as_the_document_says(tmp_path: Path) -> None:
    async with serving(small_app(f"sqlite:///{tmp_path}/jobs.db"), HubOptions(body_most=1000)) as hub:
        for method, path, sent, status in (
            ("GET", "/api/version?colour=red", {}, 400),
            ("GET", "/api/tasks/nothing", {}, 404),
            ("PUT", "/api/version", {"json": {}}, 405),
            ("PATCH", "/api/queues/images", {"content": b"x" * 1001, "headers": JSON}, 413),
            ("PATCH", "/api/queues/images", {"content": b"priority=1", "headers": {"Content-Type": "text/plain"}}, 415),
            ("PUT", "/api/schedules/x", {"json": {"task": "resize", "payload": {"image": 1}, "rule": EVERY}}, 422),
        ):
            answer = await hub.client.request(method, path, **sent)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
            refuse({"$ref": "#/components/schemas/ProblemDetails"}, answer.json(), path)
            assert answer.json()["status"] == status


JSON = {"Content-Type": "application/json"}
EVERY = {"kind": "every", "minutes": 5}


def test_the_problems_of_an_operation_are_those_it_can_have() -> None:
    assert problems_of(BY_NAME["version"]) == [400, 401, 403, 405, 429, 503]
    assert problems_of(BY_NAME["openapi"]) == [400, 405, 503]
    assert problems_of(BY_NAME["set_queue"]) == [400, 401, 403, 404, 405, 408, 413, 415, 429, 503]
    assert problems_of(BY_NAME["put_schedule"]) == [400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 503]
