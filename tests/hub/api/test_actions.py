"""Acting on jobs over a real server on a real port: on one, and on all that match."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import msgspec
import pytest

from headrace import JobHandle
from headrace.client.api import actions
from headrace.core.lifecycle.actions import ACTIONS
from headrace.errors import Unavailable
from headrace.hub import HubOptions
from headrace.hub.api import actions as acting
from headrace.hub.api.actions import OPERATIONS
from headrace.hub.auth.caller import LOCAL, Caller
from headrace.runtime.clock import SystemDice
from tests.hub.callers import AS, ann, let_in
from tests.hub.serving import Served, serving
from tests.hub.shop import Shop
from tests.support.apps import url_of
from tests.support.until import until

each_engine = pytest.mark.parametrize("kind", ["sqlite", "postgres"])

ANN, LINES = {AS: ann.name}, {"Accept": "application/x-ndjson"}
BOUND = Caller(name="bound", scopes=LOCAL.scopes, tasks=frozenset({"echo"}), queues=frozenset({"default", "slow"}))


@dataclass(frozen=True)
class Open:
    """A shop that is served."""

    shop: Shop
    served: Served

    async def act(self, id: UUID, act: str, headers: dict[str, str] | None = None, **body: Any) -> httpx2.Response:
        return await self.served.client.post(f"/api/jobs/{id}/{act}", json=body, headers=headers)

    async def act_on(
        self, act: str, filter: dict[str, Any], headers: dict[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        body = {"act": act, "filter": filter, **more}
        return await self.served.client.post("/api/jobs/act", json=body, headers=headers)

    async def work(self) -> None:
        await self.shop.app.worker(burst=True).run()

    async def statuses(self, jobs: Sequence[JobHandle[Any]]) -> list[str]:
        return [
            str(job.status) for job in await self.shop.app.jobs.get_many([job.id for job in jobs]) if job is not None
        ]


@asynccontextmanager
async def opened(kind: str, folder: Path, **options: Any) -> AsyncIterator[Open]:
    shop = Shop(url_of(kind, folder))
    async with serving(shop.app, HubOptions(maintenance=False, webhooks=False, **options)) as served:
        let_in(served, ann, BOUND)
        yield Open(shop, served)


@pytest.fixture
async def open_(tmp_path: Path) -> AsyncIterator[Open]:
    async with opened("memory", tmp_path) as made:
        yield made


# -- on one


@each_engine
async def test_every_act_is_done_by_the_key_that_asks(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        shop, later = here.shop, datetime.now(UTC) + timedelta(days=1)
        job = await shop.echo.submit()
        for act, body, status, field, value in (
            ("postpone", {"until": 3600}, 200, "status", "scheduled"),
            ("postpone", {"until": later.isoformat()}, 200, "available_at", later),
            ("run-now", {}, 200, "status", "queued"),
            ("move", {"queue": "slow"}, 200, "queue", "slow"),
            ("reprioritise", {"priority": "system"}, 200, "priority", 95),
            ("cancel", {}, 200, "status", "cancelled"),
            ("retry", {"delay": 60}, 200, "status", "scheduled"),
            ("resolve", {"result": {"a": None}}, 200, "result", {"a": None}),
            ("discard", {}, 200, "reason", "discarded"),
            ("rerun", {"payload": {"value": 2}, "priority": 7}, 201, "payload", {"value": 2}),
        ):
            answer = await here.act(job.id, act, **body)
            assert answer.status_code == status, (act, answer.text)
            found = answer.json()[field]
            assert (datetime.fromisoformat(found) if isinstance(value, datetime) else found) == value, act
        new = answer.json()
        assert (new["rerun_of"], new["priority"]) == (str(job.id), 7)
        assert answer.headers["location"] == f"/api/jobs/{new['id']}"
        assert (await here.served.client.get(answer.headers["location"])).json()["id"] == new["id"]
        history = await shop.app.jobs.history(job.id)
        assert {event.by for event in history.events} == {"local"}
        assert {event.verb for event in history.events} >= {"cancel", "move", "resolve", "rerun"}


async def test_an_act_needs_no_body_where_it_needs_to_know_nothing(open_: Open) -> None:
    client = open_.served.client
    job = await open_.shop.echo.submit()
    for act, status in (("cancel", 200), ("retry", 200), ("cancel", 200), ("rerun", 201)):
        answer = await client.post(f"/api/jobs/{job.id}/{act}", headers={"Content-Type": "application/json"})
        assert answer.status_code == status, answer.text
    for act in ("postpone", "move", "reprioritise", "resolve"):
        answer = await client.post(f"/api/jobs/{job.id}/{act}", headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, act


async def test_a_job_that_runs_is_asked_to_stop(open_: Open) -> None:
    async with open_.shop.app.worker():
        job = await open_.shop.stubborn.submit()
        await until(lambda: _is(job, "running"))
        for _ in range(2):  # a second time changes nothing
            answer = await open_.act(job.id, "cancel")
            assert (answer.status_code, answer.json()["status"]) == (202, "running")
            assert answer.json()["cancel_requested_at"] is not None
        open_.shop.go_on.set()
        await until(lambda: _is(job, "cancelled"))


async def _is(job: JobHandle[Any], status: str) -> bool:
    return (await job.refresh()).status == status


async def test_resolve_takes_an_error(open_: Open) -> None:
    for error in ("as it is", {"type": "Odd", "message": "as it is", "details": {"a": 1}}):
        job = await open_.shop.echo.submit()
        answer = (await open_.act(job.id, "resolve", error=error)).json()
        assert (answer["status"], answer["error"]["message"]) == ("failed", "as it is")
    assert answer["error"] == {"type": "Odd", "message": "as it is", "details": {"a": 1}}
    job = await open_.shop.echo.submit()
    for wrong in ({"error": "x", "result": 1}, {"error": {"type": "Odd", "message": "x", "colour": "red"}}):
        assert (await open_.act(job.id, "resolve", **wrong)).status_code == 400


async def test_what_the_lifecycle_refuses_is_409(open_: Open) -> None:
    job = await open_.shop.echo.submit()
    for act in ("retry", "rerun", "discard", "run-now"):
        answer = await open_.act(job.id, act)
        assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (409, "refused"), act
    await open_.work()
    late: dict[str, Any] = {"cancel": {}, "postpone": {"until": 5}, "move": {"queue": "q"}, "resolve": {"result": 1}}
    for act, body in late.items():
        assert (await open_.act(job.id, act, **body)).status_code == 409, act


async def test_a_rerun_that_meets_its_dedup_key_is_the_job_that_holds_it(open_: Open) -> None:
    job = await open_.shop.echo.options(dedup="one").submit(1)
    await open_.work()
    first = await open_.act(job.id, "rerun")
    second = await open_.act(job.id, "rerun")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    await job.refresh()
    refused = await open_.act(job.id, "rerun", payload={"colour": "red"})
    assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (422, "invalid-payload")


@pytest.mark.parametrize(
    ("act", "body"),
    [
        ("cancel", {"now": True}),
        ("retry", {"delay": -1}),
        ("retry", {"delay": 1e300}),
        ("postpone", {"until": "2026-01-01T00:00:00"}),
        ("postpone", {"until": "0001-01-01T00:00:00+14:00"}),
        ("move", {"queue": ""}),
        ("move", {"queue": "a\0b"}),
        ("reprioritise", {"priority": 101}),
        ("rerun", {"priority": "urgent"}),
        ("rerun", {"after": []}),
        ("rerun", {"delay": 1, "not_before": "2030-01-01T00:00:00Z"}),
    ],
)
async def test_what_cannot_be_understood_is_400(open_: Open, act: str, body: dict[str, Any]) -> None:
    job = await open_.shop.echo.submit()
    if act == "rerun":
        await open_.work()
    assert (await open_.act(job.id, act, **body)).status_code == 400
    assert not (await open_.shop.app.jobs.history(job.id)).events


# -- on all that match


@each_engine
async def test_a_dry_run_counts_and_the_act_answers_for_each(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        jobs = await here.shop.echo.map([(n,) for n in range(5)])
        other = await here.shop.tell.submit(0)
        dry = await here.act_on("cancel", {"task": "echo"}, dry_run=True)
        assert dry.json() == {"count": 5}
        assert set(await here.statuses(jobs)) == {"queued"}
        answer = (await here.act_on("cancel", {"task": ["echo"]})).json()
        assert answer["counts"] == {"done": 5, "requested": 0, "refused": 0, "not_found": 0}
        assert answer["verdicts"] == [
            {"id": str(job.id), "answer": "done", "status": "cancelled", "reason": "user"}
            for job in jobs  # the oldest first
        ]
        assert await here.statuses([*jobs, other]) == ["cancelled"] * 5 + ["queued"]
        assert (await here.act_on("cancel", {"task": "echo"}, dry_run=True)).json() == {"count": 0}


@pytest.mark.parametrize(
    ("act", "more", "status"),
    [
        ("retry", {"delay": 60}, "scheduled"),
        ("rerun", {"payload": {"why": "again"}}, "queued"),
        ("discard", {}, "cancelled"),
        ("resolve", {}, "completed"),
    ],
)
async def test_acts_on_all_that_ended(open_: Open, act: str, more: dict[str, Any], status: str) -> None:
    jobs = await open_.shop.fail.map([(str(n),) for n in range(2)])
    await open_.work()
    answer = (await open_.act_on(act, {"status": "failed", "task": "fail"}, **more)).json()
    assert [one["id"] for one in answer["verdicts"]] == [str(job.id) for job in jobs]
    assert [(one["answer"], one["status"]) for one in answer["verdicts"]] == [("done", status)] * 2
    if act == "rerun":
        again = await open_.shop.app.jobs.get(answer["verdicts"][0]["new_id"])
        assert (again.rerun_of, again.payload) == (jobs[0].id, {"why": "again"})


@pytest.mark.parametrize(
    ("act", "more", "field", "value"),
    [
        ("postpone", {"until": 60}, "status", "scheduled"),
        ("move", {"queue": "slow"}, "queue", "slow"),
        ("reprioritise", {"priority": "low"}, "priority", 15),
    ],
)
async def test_acts_on_all_that_wait(open_: Open, act: str, more: dict[str, Any], field: str, value: Any) -> None:
    jobs = await open_.shop.echo.map([(n,) for n in range(2)])
    assert (await open_.act_on(act, {"queue": "default"}, **more)).json()["counts"]["done"] == 2
    assert [getattr(job, field) for job in await open_.shop.app.jobs.get_many([job.id for job in jobs])] == [value] * 2
    if act == "postpone":
        assert (await open_.act_on("run-now", {"queue": "default"})).json()["counts"]["done"] == 2


async def test_each_has_a_verdict_of_its_own(open_: Open) -> None:
    held = await open_.shop.echo.options(dedup="k").submit(1)
    await held.cancel()
    holder = await open_.shop.echo.options(dedup="k").submit(2)
    free = await open_.shop.echo.submit(3)
    await free.cancel()
    answer = (await open_.act_on("retry", {"task": "echo"})).json()
    assert answer["counts"] == {"done": 1, "requested": 0, "refused": 1, "not_found": 0}
    refused, done = answer["verdicts"]
    assert (refused["id"], refused["answer"], refused["error"]) == (str(held.id), "refused", "Duplicate")
    assert str(holder.id) in refused["message"]
    assert (done["id"], done["answer"]) == (str(free.id), "done")


def _read(answer: httpx2.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"] == "application/x-ndjson", answer.text
    return [msgspec.json.decode(line) for line in answer.text.splitlines()]


@each_engine
async def test_any_number_is_answered_as_lines(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "MAX_ACTION_VERDICTS", 20)
    async with opened(kind, tmp_path) as here:
        jobs = await here.shop.echo.map([(n,) for n in range(21)])
        many = await here.act_on("cancel", {"task": "echo"})
        assert (many.status_code, many.json()["type"].rpartition("/")[2]) == (409, "too-many")
        assert "application/x-ndjson" in many.json()["detail"]
        assert set(await here.statuses(jobs)) == {"queued"}  # nothing was done
        *verdicts, counts = _read(await here.act_on("cancel", {"task": "echo"}, LINES))
        assert [one["id"] for one in verdicts] == [str(job.id) for job in jobs]
        assert counts == {"done": 21, "requested": 0, "refused": 0, "not_found": 0}
        assert _read(await here.act_on("cancel", {"task": "echo"}, LINES)) == [
            {"done": 0, "requested": 0, "refused": 0, "not_found": 0}
        ]


async def test_lines_end_when_the_hub_drains_and_say_so(open_: Open) -> None:
    jobs = await open_.shop.echo.map([(n,) for n in range(3)])
    open_.served.hub.draining.set()
    first, counts = _read(await open_.act_on("cancel", {"task": "echo"}, LINES))
    assert (first["id"], counts["done"], counts["stopped"]) == (str(jobs[0].id), 1, "the hub is about to stop")
    assert await open_.statuses(jobs) == ["cancelled", "queued", "queued"]


async def test_lines_end_with_their_key_and_say_so(open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = await open_.shop.echo.map([(n,) for n in range(3)])
    monkeypatch.setattr(open_.served.hub.authenticator, "knows", lambda caller: False)  # it was revoked meanwhile
    first, counts = _read(await open_.act_on("cancel", {"task": "echo"}, LINES))
    assert (first["id"], counts["done"], counts["problem"]["status"]) == (str(jobs[0].id), 1, 401)
    assert await open_.statuses(jobs) == ["cancelled", "queued", "queued"]


async def test_lines_that_a_fault_ends_say_so(open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, act = await open_.shop.echo.map([(n,) for n in range(3)]), actions.act

    async def broken(app: Any, id: Any, *rest: Any) -> Any:
        if id == jobs[1].id:
            raise Unavailable("the store is away")
        return await act(app, id, *rest)

    monkeypatch.setattr(actions, "act", broken)
    _, counts = _read(await open_.act_on("cancel", {"task": "echo"}, LINES))
    assert (counts["done"], counts["problem"]["status"]) == (1, 503)
    monkeypatch.undo()
    assert (await open_.act_on("cancel", {"task": "echo"})).json()["counts"]["done"] == 2  # the rest


async def test_a_client_that_hangs_up_ends_it(open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, act = await open_.shop.echo.map([(n,) for n in range(3)]), actions.act
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(app: Any, id: Any, *rest: Any) -> Any:
        if id == jobs[1].id:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return await act(app, id, *rest)

    monkeypatch.setattr(actions, "act", slow)
    task = asyncio.create_task(open_.act_on("cancel", {"task": "echo"}, LINES))
    await asyncio.wait_for(begun.wait(), 30)
    task.cancel()
    await asyncio.wait_for(ended.wait(), 30)
    assert await open_.statuses(jobs) == ["cancelled", "queued", "queued"]


@pytest.mark.parametrize(
    "body",
    [
        {"act": "cancel", "filter": {}},
        {"act": "cancel"},
        {"filter": {"task": "echo"}},
        {"act": "complete", "filter": {"task": "echo"}},
        {"act": "cancel", "filter": {"task": "echo", "colour": "red"}},
        {"act": "cancel", "filter": {"task": "echo"}, "delay": 5},
        {"act": "postpone", "filter": {"task": "echo"}},
        {"act": "cancel", "filter": {"suspect": False, "status": []}},
        {"act": "rerun", "filter": {"status": "completed"}, "payload": {}},
        {
            "act": "cancel",
            "filter": {"created_after": "2026-01-01T00:00:00Z", "created_before": "2025-01-01T00:00:00Z"},
        },
    ],
)
async def test_an_act_on_many_that_cannot_be_understood(open_: Open, body: dict[str, Any]) -> None:
    job = await open_.shop.echo.submit()
    for headers in ({}, LINES):
        answer = await open_.served.client.post("/api/jobs/act", json=body, headers=headers)
        assert answer.status_code == 400, answer.text
    assert (await job.refresh()).status == "queued"


# -- whose


@each_engine
async def test_acts_on_foreign_jobs_are_answered_like_those_on_absent_ones(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        mine = await here.shop.echo.options(customer="ann").submit()
        other = await here.shop.echo.options(customer="bob").submit()
        absent = SystemDice().new_id(datetime.now(UTC))
        for act, body in (
            ("cancel", {}),
            ("retry", {}),
            ("rerun", {}),
            ("discard", {}),
            ("resolve", {"result": 1}),
            ("run-now", {}),
            ("postpone", {"until": 5}),
            ("move", {"queue": "slow"}),
            ("reprioritise", {"priority": 1}),
        ):
            expected = await here.act(absent, act, ANN, **body)
            answer = await here.act(other.id, act, ANN, **body)
            assert answer.status_code == expected.status_code == 404, act
            assert answer.text.replace(str(other.id), str(absent)) == expected.text
        before = (await other.refresh()).rev
        assert (await here.act_on("cancel", {"task": "echo"}, ANN, dry_run=True)).json() == {"count": 1}
        answer = (await here.act_on("cancel", {"task": "echo"}, ANN)).json()
        assert [one["id"] for one in answer["verdicts"]] == [str(mine.id)]
        assert (await other.refresh()).rev == before
        assert {event.by for event in (await here.shop.app.jobs.history(mine.id)).events} == {"ann-key"}
        for filter in ({"customer": "bob"}, {"customer_id": ["ann", "bob"]}):
            assert (await here.act_on("cancel", filter, ANN)).status_code == 403
        assert (await here.act_on("cancel", {}, ANN)).status_code == 400  # its customer alone is no filter
        assert (await here.act(mine.id, "rerun", ANN, customer="bob")).status_code == 403
        assert (await here.act_on("rerun", {"task": "echo"}, ANN, customer="bob")).status_code == 403
        again = await here.act(mine.id, "rerun", ANN)
        assert (again.status_code, again.json()["customer"]) == (201, "ann")


async def test_a_key_that_is_bound_makes_no_other_jobs(open_: Open) -> None:
    by = {AS: BOUND.name}
    own = await open_.shop.echo.submit(1)
    far = await open_.shop.echo.options(queue="far").submit(2)
    other = await open_.shop.tell.submit(0)
    await open_.work()
    assert (await open_.act(own.id, "rerun", by)).status_code == 201
    assert (await open_.act(own.id, "rerun", by, queue="slow")).status_code == 201
    for job, body in ((other, {}), (far, {}), (own, {"queue": "far"})):
        assert (await open_.act(job.id, "rerun", by, **body)).status_code == 403
    waiting = await open_.shop.echo.submit(3)
    assert (await open_.act(waiting.id, "move", by, queue="far")).status_code == 403
    assert (await open_.act_on("move", {"task": "echo"}, by, queue="far")).status_code == 403
    assert (await open_.act_on("rerun", {"task": "tell"}, by)).status_code == 403
    assert (await open_.act_on("rerun", {"status": "completed"}, by, dry_run=True)).json() == {"count": 1}
    assert (await open_.act_on("rerun", {"status": "completed"}, by, queue="slow", dry_run=True)).json() == {"count": 2}
    assert (await open_.act_on("rerun", {"status": "completed"}, dry_run=True)).json() == {"count": 3}


async def test_acts_keep_to_the_caps_of_a_customer(tmp_path: Path) -> None:
    async with opened("memory", tmp_path, customer_jobs=3, customer_priority=60) as here:
        jobs = [await here.shop.fail.options(customer="ann").submit("x") for _ in range(4)]
        await here.work()
        live = await here.shop.echo.options(customer="ann").submit()
        assert (await here.act(live.id, "reprioritise", ANN, priority="high")).status_code == 403
        assert (await here.act_on("reprioritise", {"task": "echo"}, ANN, priority=61)).status_code == 403
        assert (await here.act(live.id, "reprioritise", ANN, priority=60)).status_code == 200
        assert (await here.act(jobs[0].id, "rerun", ANN, priority="high")).status_code == 403
        assert (await here.act_on("rerun", {"task": "fail"}, ANN, priority="high")).status_code == 403
        for act in ("retry", "rerun"):
            for headers in (ANN, ANN | LINES):
                answer = await here.act_on(act, {"task": "fail"}, headers)
                assert (answer.status_code, answer.headers.get("retry-after")) == (429, "5"), act
        assert (await here.act(jobs[0].id, "retry", ANN)).status_code == 200
        assert (await here.act(jobs[1].id, "rerun", ANN)).status_code == 201
        for act in ("retry", "rerun"):
            assert (await here.act(jobs[2].id, act, ANN)).status_code == 429, act
            assert (await here.act(jobs[2].id, act)).status_code in (200, 201), act  # an operator may
            await here.act(jobs[2].id, "cancel")


async def test_nobody_forges_what_is_headraces_own(open_: Open) -> None:
    job = await open_.shop.echo.submit()
    assert (await open_.act(job.id, "move", queue="headrace.webhooks")).status_code == 403
    own = await open_.shop.app.draft("echo", {}, queue="headrace.webhooks")
    own.task = "headrace.deliver"
    await own.submit()
    await open_.act(own.id, "cancel")
    assert (await open_.act(own.id, "rerun", payload={"url": "http://169.254.169.254/"})).status_code == 403
    filter = {"task": "headrace.deliver"}
    assert (await open_.act_on("rerun", filter, payload={"url": "x"})).status_code == 403
    assert (await open_.act(own.id, "rerun")).status_code == 201  # again as it was, it may be


async def test_an_old_id_is_gone(open_: Open) -> None:
    id = SystemDice().new_id(datetime.now(UTC) - timedelta(days=8))
    assert (await open_.act(id, "cancel")).status_code == 410
    assert (await open_.act(uuid4(), "cancel")).status_code == 404
    assert (await open_.served.client.post("/api/jobs/job-abc123/cancel", json={})).status_code == 404


def test_every_act_of_an_app_can_be_asked_for() -> None:
    assert {f"{verb}_job" for verb in ACTIONS} == {one.name for one in OPERATIONS} - {"act_on_jobs"}
