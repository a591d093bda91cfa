"""Submits over a real server on a real port: one job, and many with a verdict for each."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headrace import Status
from headrace.engine import InsertAnswer
from headrace.errors import Unavailable, Unstorable
from headrace.http import positions
from headrace.http.positions import Positions
from headrace.hub import HubOptions
from tests.hub.callers import AS, ann, bob, let_in
from tests.hub.page import SUBMIT
from tests.hub.serving import Served, serving
from tests.support.apps import ENGINES, Sums, busy_worker, url_of

NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture(params=ENGINES)
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(Sums(url_of(request.param, tmp_path)).app) as served:
        yield served


@pytest.fixture
async def small() -> AsyncIterator[Served]:
    async with serving(Sums().app) as served:
        yield served


async def jobs_of(hub: Served) -> int:
    return (await hub.app.session.engine.records.ledger()).accepted


async def verdicts(hub: Served, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await hub.client.post("/api/jobs/bulk", json={"jobs": jobs})
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["verdicts"]
    assert [one["index"] for one in found] == list(range(len(jobs)))
    return found


# -- one


async def test_a_job_is_submitted_and_runs(hub: Served) -> None:
    body = {"task": "add", "payload": {"a": 2, "b": 3}, "tags": ["x"]}
    answer = await hub.client.post("/api/jobs", json=body)
    told = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, f"/api/jobs/{told['job_id']}")
    assert (told["status"], told["position"], told["estimated_start"]) == ("queued", 1, None)
    assert (told["duplicate"], told["replaced"], told["warnings"]) == (False, False, [])
    job = await hub.app.jobs.get(told["job_id"])
    assert (job.payload, job.tags) == ({"a": 2, "b": 3}, ("x",))
    assert told["created_at"] == job.to_dict()["created_at"]
    async with hub.app.worker():
        assert await hub.app.jobs.handle(told["job_id"]).result(timeout=45) == 5


async def test_the_page_is_taken_to_the_letter(small: Served) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning of Python has no reader here
        answer = await small.client.post("/api/jobs", content=SUBMIT)
    told = answer.json()
    assert answer.status_code == 201
    assert {"job_id", "status", "position", "estimated_start", "created_at"} <= told.keys()
    assert (told["status"], told["position"]) == ("queued", 1)
    [warning] = told["warnings"]
    assert "no worker has registered a task named 'render_frame'" in warning
    job = await small.app.jobs.get(told["job_id"])
    assert (job.task, job.priority, job.customer, job.timeout) == ("render_frame", 75, "studio-7", 900)
    assert (job.retry.max_retries, job.metadata) == (3, {"quality_level": "draft"})
    assert job.payload["scene"] == "harbour at dawn"
    assert job.requires["hardware"] == {"gpu_memory_gb": 8}


async def test_a_request_that_is_repeated_is_answered_with_the_same_job(hub: Served) -> None:
    async def submit(body: dict[str, Any], key: str = "order-17") -> tuple[int, dict[str, Any]]:
        answer = await hub.client.post("/api/jobs", json=body, headers={"Idempotency-Key": key})
        return answer.status_code, answer.json()

    body = {"task": "add", "payload": {"a": 2}}
    status, first = await submit(body)
    assert status == 201
    again = await asyncio.gather(*(submit(body) for _ in range(5)))
    assert {(status, told["job_id"], told["duplicate"]) for status, told in again} == {(200, first["job_id"], True)}
    status, told = await submit({**body, "request_key": "order-17"})
    assert (status, told["job_id"]) == (200, first["job_id"])
    status, problem = await submit({"task": "add", "payload": {"a": 3}})
    assert (status, problem["type"].rpartition("/")[2], problem["job_id"]) == (422, "key-reused", first["job_id"])
    status, problem = await submit({**body, "request_key": "other"})
    assert (status, problem["errors"][0]["field"]) == (400, "Idempotency-Key")
    assert await jobs_of(hub) == 1


async def test_a_key_must_be_one_key(small: Served) -> None:
    body = b'{"task":"add","payload":{"a":1}}'
    for headers in ([("Idempotency-Key", "a"), ("Idempotency-Key", "b")], [("Idempotency-Key", "")]):
        answer = await small.client.post("/api/jobs", content=body, headers=headers)
        assert (answer.status_code, await jobs_of(small)) == (400, 0)


async def test_duplicates(hub: Served) -> None:
    async def submit(**body: Any) -> tuple[int, dict[str, Any]]:
        answer = await hub.client.post("/api/jobs", json={"task": "add", "dedup": "k", **body})
        return answer.status_code, answer.json()

    status, first = await submit(payload={"a": 1})
    assert status == 201
    status, told = await submit(payload={"a": 2})
    assert (status, told["job_id"], told["duplicate"], told["replaced"]) == (200, first["job_id"], True, False)
    status, problem = await submit(payload={"a": 2}, on_duplicate="raise")
    assert (status, problem["job_id"]) == (409, first["job_id"])
    status, told = await submit(payload={"a": 3}, on_duplicate="replace")
    assert (status, told["job_id"], told["replaced"]) == (200, first["job_id"], True)
    assert (await hub.app.jobs.get(first["job_id"])).payload == {"a": 3}


async def test_a_payload_that_does_not_fit_is_named(small: Served) -> None:
    answer = await small.client.post("/api/jobs", json={"task": "add", "payload": {"a": "two"}})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "payload.a")
    answer = await small.client.post("/api/jobs", json={"task": "add", "payload": {"a": 1, "c": 1}})
    assert (answer.status_code, "c" in answer.json()["detail"]) == (422, True)
    answer = await small.client.post("/api/jobs", json={"task": "new", "payload": {"a": "x" * 200_000}})
    assert answer.status_code == 413
    assert await jobs_of(small) == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"task":"add","colour":1}', "colour"),
        (b'{"task":"add","retry":{"colour":1}}', "retry.colour"),
        (b'{"task":"add","priority":101}', "priority"),
        (b'{"task":"add","priority":true}', "priority"),
        (b'{"task":"add","not_before":"2027-01-01T00:00:00"}', "not_before"),
        (b'{"task":"add","after":["x"]}', "after[0]"),
        (b'{"payload":{}}', "task"),
        (b'{"task":"add","delay":1,"not_before":"2027-01-01T00:00:00Z"}', None),
        (b'{"task":"add","payload":{"a":' + b'{"b":' * 5000 + b"1" + b"}" * 5002, None),
        (b'{"task":"\xff"}', None),
        (b'{"task":"a\\u0000"}', None),
        (b'{"task":"add","queue":"\\u0000"}', None),
        (b'{"task":"new","payload":{"a":"\\ud800"}}', None),
        (b'{"task":"new","payload":{"a":1e999}}', "payload[...]"),
        (b"[" * 100_000, None),
        (b"", None),
        (b"null", None),
    ],
)
async def test_what_cannot_be_understood_is_refused_and_named(small: Served, body: bytes, field: str | None) -> None:
    answer = await small.client.post("/api/jobs", content=body)
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (400, 400)
    assert answer.headers["content-type"] == "application/problem+json"
    assert [one["field"] for one in problem.get("errors", [])] == ([field] if field else [])
    assert await jobs_of(small) == 0


async def test_what_is_headraces_own_is_nobodys_to_submit(small: Served) -> None:
    for body in ({"task": "headrace.deliver"}, {"task": "add", "payload": {"a": 1}, "queue": "headrace.webhooks"}):
        assert (await small.client.post("/api/jobs", json=body)).status_code == 403
        [verdict] = await verdicts(small, body)
        assert verdict["problem"]["status"] == 403
    assert await jobs_of(small) == 0


async def test_a_job_waits_for_others(hub: Served) -> None:
    first = (await hub.client.post("/api/jobs", json={"task": "add", "payload": {"a": 1}})).json()["job_id"]
    told = (await hub.client.post("/api/jobs", json={"task": "add", "payload": {"a": 1}, "after": [first]})).json()
    assert (told["status"], told["position"]) == ("waiting", None)
    body = {"task": "add", "payload": {"a": 1}, "after": [str(hub.app.host.new_id())]}
    assert (await hub.client.post("/api/jobs", json=body)).status_code == 404


# -- positions


async def test_positions_are_told_and_null_where_unknown(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "READ_TIMEOUT_SECONDS", 45)

    async def submit(**body: Any) -> tuple[int | None, str | None]:
        hub.hub.positions = Positions(hub.app)  # which has told nobody anything
        answer = await hub.client.post("/api/jobs", json={"task": "add", "payload": {"a": 1}, **body})
        told = answer.json()
        return told["position"], told["estimated_start"]

    assert [await submit() for _ in range(3)] == [(1, None), (2, None), (3, None)]
    assert await submit(priority=90) == (1, None), "it goes first, and nobody is there to take it"
    assert await submit(delay=60) == (None, None), "it is not in line"
    await hub.app.queues.pause("held")
    await busy_worker(hub.app.session.engine, "add")
    assert await submit(queue="held") == (1, None), "nothing is taken from a paused queue"


async def test_a_duplicate_has_the_position_of_its_job_and_moves_no_other(small: Served) -> None:
    async def position(key: str) -> tuple[int | None, bool | None]:
        answer = await small.client.post("/api/jobs", json={"task": "add", "payload": {"a": 1}, "dedup": key})
        told = answer.json()
        small.hub.positions._time.spend(1000)  # what is new is counted on
        return told["position"], told.get("position_approximate")

    found = [await position(key) for key in "abac"]
    assert found == [(1, None), (2, True), (1, None), (3, True)], "what was not read is marked"


async def test_every_one_of_many_at_once_gets_a_position(small: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "READ_TIMEOUT_SECONDS", 45)
    body = {"task": "add", "payload": {"a": 1}}
    answers = await asyncio.gather(*(small.client.post("/api/jobs", json=body) for _ in range(200)))
    told = {answer.json()["job_id"]: answer.json()["position"] for answer in answers}
    assert None not in told.values()
    found = await small.app.jobs.get_many(list(told))
    jobs = sorted((job for job in found if job is not None), key=lambda job: job.seq)
    assert [told[str(job.id)] for job in jobs] == [*range(1, 201)], "each its own, by the order of the queue"


# -- whose it is


async def test_a_key_with_a_customer_makes_that_customers_jobs(small: Served) -> None:
    let_in(small, ann, bob)

    async def submit(who: str, **body: Any) -> tuple[int, dict[str, Any]]:
        body = {"task": "add", "payload": {"a": 1}, **body}
        answer = await small.client.post("/api/jobs", json=body, headers={AS: who})
        return answer.status_code, answer.json()

    status, of_ann = await submit("ann-key", dedup="k", request_key="r")
    assert (status, (await small.app.jobs.get(of_ann["job_id"])).customer) == (201, "ann")
    status, of_bob = await submit("bob-key", dedup="k", request_key="r", customer="bob")
    assert (status, of_bob["job_id"] != of_ann["job_id"]) == (201, True)
    assert (await submit("ann-key", customer_id="bob"))[0] == 403
    assert (await submit("ann-key", after=[of_bob["job_id"]]))[0] == 404
    assert (await submit("bob-key", after=[of_bob["job_id"]]))[0] == 201


async def test_a_key_that_is_bound_submits_nothing_else(small: Served) -> None:
    bound = replace(ann, customer=None, tasks=frozenset({"add"}), queues=frozenset({"default", "extra"}))
    let_in(small, bound)

    async def status_of(**body: Any) -> int:
        answer = await small.client.post("/api/jobs", json=body, headers={AS: "ann-key"})
        [verdict] = (await small.client.post("/api/jobs/bulk", json={"jobs": [body]}, headers={AS: "ann-key"})).json()[
            "verdicts"
        ]
        assert verdict.get("problem", {"status": 201})["status"] == answer.status_code
        return answer.status_code

    assert await status_of(task="add", payload={"a": 1}) == 201
    assert await status_of(task="add", payload={"a": 1}, queue="extra") == 201
    assert await status_of(task="add", payload={"a": 1}, queue="slow") == 403
    assert await status_of(task="fail", payload={"why": "x"}) == 403
    assert await status_of(task="fail", payload={"nonsense": 1}) == 403, "nothing is said of what is not for it"
    assert await status_of(task="unknown") == 403


async def test_jobs_of_customers_are_only_so_urgent(small: Served) -> None:
    let_in(small, ann)
    most = small.hub.options.customer_priority
    bodies = [{"task": "add", "payload": {"a": 1}, "priority": priority} for priority in (most, most + 1)]
    answers = [await small.client.post("/api/jobs", json=body, headers={AS: "ann-key"}) for body in bodies]
    assert [answer.status_code for answer in answers] == [201, 403]
    bulk = await small.client.post("/api/jobs/bulk", json={"jobs": bodies}, headers={AS: "ann-key"})
    assert [one["verdict"] for one in bulk.json()["verdicts"]] == ["created", "refused"]


# -- many


async def test_each_of_many_has_its_verdict(hub: Served) -> None:
    add = {"task": "add", "payload": {"a": 1}}
    found = await verdicts(
        hub,
        add,
        {"task": "add", "payload": {"a": "x"}},
        {**add, "idempotency_key": "r"},
        {**add, "idempotency_key": "r"},
        {"task": "add", "payload": {"a": 2}, "idempotency_key": "r"},
        {**add, "dedup": "k"},
        {**add, "dedup": "k"},
        {**add, "dedup": "k", "on_duplicate": "raise"},
        {**add, "dedup": "k", "on_duplicate": "replace"},
        {**add, "after": [str(hub.app.host.new_id())]},
        {**add, "colour": 1},
        {"task": "unknown"},
    )
    assert [(one["verdict"], one.get("problem", {}).get("status")) for one in found] == [
        ("created", None),
        ("refused", 422),
        ("created", None),
        ("duplicate", None),
        ("refused", 422),
        ("created", None),
        ("duplicate", None),
        ("refused", 409),
        ("replaced", None),
        ("refused", 404),
        ("refused", 400),
        ("created", None),
    ]
    assert found[2]["job_id"] == found[3]["job_id"] == found[4]["problem"]["job_id"]
    assert found[5]["job_id"] == found[6]["job_id"] == found[8]["job_id"]
    assert "no worker has registered" in found[11]["warnings"][0]
    assert await jobs_of(hub) == 4


async def test_a_thousand_are_stored_in_their_order(hub: Served) -> None:
    found = await verdicts(hub, *({"task": "add", "payload": {"a": number}} for number in range(1000)))
    assert {one["verdict"] for one in found} == {"created"}
    jobs = await hub.app.jobs.get_many(one["job_id"] for one in found)
    assert [job.payload["a"] for job in jobs if job is not None] == list(range(1000))
    seqs = [job.seq for job in jobs if job is not None]
    assert seqs == sorted(seqs)


async def test_a_bulk_is_bounded_and_has_no_key_of_its_own(small: Served) -> None:
    job = {"task": "add", "payload": {"a": 1}}
    answer = await small.client.post("/api/jobs/bulk", json={"jobs": [job] * 1001})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "jobs")
    answer = await small.client.post("/api/jobs/bulk", json={"jobs": [job]}, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "Idempotency-Key")
    answer = await small.client.post("/api/jobs/bulk", content=b"x", headers={"content-type": "text/plain"})
    assert answer.status_code in (403, 415)
    assert (await small.client.post("/api/jobs/bulk", json={"jobs": []})).json() == {"verdicts": []}
    assert await jobs_of(small) == 0


async def test_a_bulk_of_lines_is_answered_with_lines(hub: Served) -> None:
    lines = [json.dumps({"task": "add", "payload": {"a": number}}) for number in range(1200)]
    lines[700] = "nonsense"
    body = "\r\n\n".join(lines)  # without a line feed at the end
    answer = await hub.client.post("/api/jobs/bulk", content=body, headers=NDJSON)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["index"] for one in found] == list(range(1200))
    assert [one["index"] for one in found if one["verdict"] != "created"] == [700]
    jobs = await hub.app.jobs.get_many(one["job_id"] for one in found if "job_id" in one)
    seqs = [job.seq for job in jobs if job is not None]
    assert (len(seqs), seqs) == (1199, sorted(seqs))


async def test_a_store_that_goes_away_in_the_middle(small: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write is stored and heard of, the second is stored and nobody hears of it, the third is refused."""
    jobs, patience, calls = small.app.session.engine.jobs, 0.0, 0
    insert: Callable[..., Any] = jobs.insert

    async def failing(*args: Any, **options: Any) -> list[InsertAnswer]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Unavailable("gone")
        stored: list[InsertAnswer] = await insert(*args, **options)
        if calls == 2:
            raise Unavailable("the reply was lost", outcome="unknown")
        return stored

    monkeypatch.setattr(jobs, "insert", failing)
    for batcher in small.app.session.writer.inserts.batchers:
        monkeypatch.setattr(batcher, "_timeout", patience)
    found = list[dict[str, Any]]()
    for _ in range(4):
        found += await verdicts(small, *[{"task": "add", "payload": {"a": 1}}] * 2)
    assert [one["verdict"] for one in found] == ["created"] * 2 + ["unknown"] * 2 + ["refused"] * 2 + ["created"] * 2
    assert {one["problem"]["status"] for one in found[2:6]} == {503}
    unknown = await small.app.jobs.get_many(one["job_id"] for one in found[2:4])
    assert [job.status for job in unknown if job is not None] == [Status.QUEUED] * 2, "by its id one can look"
    assert "job_id" not in found[4]


async def test_one_that_the_store_refuses_leaves_the_others(small: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = small.app.session.engine.jobs
    insert: Callable[..., Any] = jobs.insert

    async def choosy(given: Any, *args: Any, **options: Any) -> list[InsertAnswer]:
        if any(job.payload["a"] == 2 for job in given):
            raise Unstorable("no twos")
        stored: list[InsertAnswer] = await insert(given, *args, **options)
        return stored

    monkeypatch.setattr(jobs, "insert", choosy)
    found = await verdicts(small, *({"task": "add", "payload": {"a": number}} for number in (1, 2, 3)))
    assert [one["verdict"] for one in found] == ["created", "refused", "created"]
    assert found[1]["problem"]["status"] == 422


async def test_middleware_of_the_app_is_around_each(small: Served) -> None:
    @small.app.submit_middleware
    async def no_twos(drafts: Any, call_next: Any) -> Any:
        if any('"a":2' in draft.payload_text for draft in drafts):
            raise PermissionError("no twos")
        return await call_next([draft.with_options(tags=["seen"]) for draft in drafts])

    found = await verdicts(small, *({"task": "add", "payload": {"a": number}} for number in (1, 2, 3)))
    assert [one["verdict"] for one in found] == ["created", "refused", "created"]
    assert found[1]["problem"]["status"] == 500, "what nobody foresaw is a fault, and in the log"
    assert (await small.app.jobs.get(found[0]["job_id"])).tags == ("seen",)


async def test_limits_of_bodies(tmp_path: Path) -> None:
    options = HubOptions(body_most=500, bulk_most=2000, maintenance=False, webhooks=False)
    async with serving(Sums().app, options) as hub:
        big = {"task": "add", "payload": {"a": 1}, "metadata": {"x": "x" * 600}}
        assert (await hub.client.post("/api/jobs", json=big)).status_code == 413
        assert (await hub.client.post("/api/jobs/bulk", json={"jobs": [big] * 3})).status_code == 200
        assert (await hub.client.post("/api/jobs/bulk", json={"jobs": [big] * 4})).status_code == 413


async def test_a_submit_by_the_page_is_answered_in_its_words_unless_it_asks_otherwise(small: Served) -> None:
    @small.app.task
    async def halt() -> None:
        await asyncio.Event().wait()

    async def status(query: str, **body: Any) -> str:
        answer = await small.client.post(f"/api/jobs{query}", json={"payload": {"a": 1}, **body})
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["status"])

    held = {"idempotency_key": "one", "max_retries": 0, "requirements": {"timeout_minutes": 0.0001}}
    assert await status("", type="halt", payload={}, **held) == "queued"
    await small.app.worker(burst=True).run()
    assert await status("", type="halt", payload={}, **held) == "timeout"
    assert await status("?words=headrace", type="halt", payload={}, **held) == "failed"
    assert await status("?words=osqueue", type="halt", payload={}, **held) == "exhausted"
    assert await status("", task="halt", type="halt", payload={}, **held) == "failed"
    assert await status("?words=jobmaster", task="add") == "AssignedToBucket"
    found = await verdicts(
        small, {"type": "halt", **held}, {"task": "halt", **held}, {"task": "add", "payload": {"a": 1}}
    )
    assert [one["status"] for one in found] == ["timeout", "failed", "queued"]
    assert [one.get("reason") for one in found] == ["timeout", "timeout", None]
    lines = json.dumps({"task": "add", "payload": {"a": 1}}) + "\n"
    answer = await small.client.post("/api/jobs/bulk?words=surefire", content=lines, headers=NDJSON)
    assert answer.json()["status"] == "Pending"
