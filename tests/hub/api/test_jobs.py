"""Looking at jobs over a real server on a real port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
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
from headrace.engines.sql.search import finder
from headrace.hub.api import jobs as looking
from headrace.runtime.clock import SystemDice
from tests.hub.callers import AS, ann, bob, let_in
from tests.hub.serving import Served, serving
from tests.hub.shop import Shop
from tests.support.apps import url_of
from tests.support.until import until

each_engine = pytest.mark.parametrize("kind", ["sqlite", "postgres"])

ANN, BOB, LINES = {AS: ann.name}, {AS: bob.name}, {"Accept": "application/x-ndjson"}


@dataclass(frozen=True)
class Open:
    """A shop that is served."""

    shop: Shop
    served: Served

    async def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> httpx2.Response:
        return await self.served.client.get(f"/api/jobs{path}", params=query, headers=headers)

    async def work(self) -> None:
        await self.shop.app.worker(burst=True).run()


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Open]:
    shop = Shop(url_of(kind, folder))
    async with serving(shop.app) as served:
        let_in(served, ann, bob)
        yield Open(shop, served)


@pytest.fixture
async def open_(tmp_path: Path) -> AsyncIterator[Open]:
    async with opened("memory", tmp_path) as made:
        yield made


def ids(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["items"]]


# -- many


@each_engine
async def test_jobs_are_found_by_filters(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        shop, begin = here.shop, datetime.now(UTC) - timedelta(minutes=1)
        first = await shop.echo.options(customer="ann", tags=["red"], queue="a").submit("findme")
        second = await shop.fail.options(customer="bob", queue="b").submit("why")
        await here.work()
        third = await shop.app.jobs.handle(first.id).rerun()
        family = await shop.family.submit(2)
        await here.work()
        [failed] = (await here.get("", status="failed")).json()["items"]
        one, two, three = (str(job.id) for job in (first, second, third))
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({"status": "failed"}, [two]),
            ({"status": ["failed", "in_progress"]}, [two]),
            ({"reason": "retries_exhausted"}, [two]),
            ({"task": ["fail", "none"]}, [two]),
            ({"type": "fail"}, [two]),
            ({"queue": ["a", "b"]}, [three, two, one]),
            ({"tag": "red", "customer": "ann"}, [three, one]),
            ({"customer_id": "bob"}, [two]),
            ({"customer_id": "bob", "customer": "bob"}, [two]),
            ({"text": "FINDME"}, [three, one]),
            ({"rerun_of": one}, [three]),
            ({"fingerprint": failed["fingerprint"]}, [two]),
            ({"worker": str(uuid4())}, []),
            ({"batch": str(uuid4())}, []),
            ({"schedule": "nightly"}, []),
            ({"suspect": "true"}, []),
            ({"created_after": begin.isoformat(), "queue": "b"}, [two]),
            ({"created_before": begin.isoformat()}, []),
            ({"finished_after": begin.isoformat(), "status": "failed"}, [two]),
            ({"finished_before": begin.isoformat()}, []),
        ]
        for query, expected in cases:
            assert ids(await here.get("", **query)) == expected, query
            assert (await here.get("/count", **query)).json() == {"count": len(expected)}, query
        children = ids(await here.get(f"/{family.id}/children"))
        assert len(children) == 2
        for name in ("parent", "root"):
            assert ids(await here.get("", None, **{name: str(family.id)})) == children


@each_engine
async def test_pages_go_on_behind_their_cursor(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "READ_JOBS", 3)
    async with opened(kind, tmp_path) as here:
        jobs = await here.shop.echo.map([(n,) for n in range(10)])
        newest = [str(job.id) for job in reversed(jobs)]
        first = (await here.get("", limit=7)).json()
        assert [job["id"] for job in first["items"]] == newest[:7]
        assert not first["partial"]
        rest = (await here.get("", limit=7, cursor=first["cursor"])).json()
        assert [job["id"] for job in rest["items"]] == newest[7:]
        assert (rest["cursor"], rest["partial"]) == (None, False)


async def test_a_large_page_ends_early_and_says_so(open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "READ_JOBS", 2)
    monkeypatch.setattr(looking, "MAX_HUB_PAGE_BYTES", 50)
    await open_.shop.echo.map([("x" * 30,) for _ in range(5)])
    page = (await open_.get("", limit=5)).json()
    assert (len(page["items"]), page["partial"]) == (2, True)
    rest = (await open_.get("", limit=5, cursor=page["cursor"])).json()
    assert len(rest["items"]) == 2


async def test_a_search_by_text_looks_at_the_newest_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened("sqlite", tmp_path) as here:
        old = await here.shop.echo.submit("needle")
        await here.shop.echo.map([("hay",) for _ in range(6)])
        monkeypatch.setattr(finder, "MAX_TEXT_CANDIDATES", 4)
        page = (await here.get("", text="needle")).json()
        assert (page["items"], page["partial"]) == ([], True)
        rest = (await here.get("", text="needle", cursor=page["cursor"])).json()
        assert [job["id"] for job in rest["items"]] == [str(old.id)]
        assert (rest["cursor"], rest["partial"]) == (None, False)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"status": "done"}, "status"),
        ({"colour": "red"}, "colour"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"parent": "x"}, "parent"),
        ({"text": ""}, "text"),
        ({"created_after": "2024-01-01T00:00:00"}, "created_after"),
        ({"task": "a", "type": "b"}, "type"),
        ({"customer": "a", "customer_id": "b"}, "customer_id"),
    ],
)
async def test_what_cannot_be_asked_for_is_named(open_: Open, query: dict[str, Any], field: str) -> None:
    answer = await open_.get("", **query)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"].startswith(field)


@each_engine
async def test_strange_values_find_nothing(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        await here.shop.echo.submit()
        for query in (
            {"task": "\0"},
            {"text": "\0"},
            {"tag": "\ud7ff"},
            {"created_before": "0001-01-01T00:00:00+14:00"},
            {"created_after": "9999-12-31T23:59:59-14:00"},
            {"finished_before": "1600-01-01T00:00:00Z"},
            {"created_after": "2026-01-01T00:00:00Z", "created_before": "2025-01-01T00:00:00Z"},
        ):
            for path in ("", "/count"):
                answer = await here.get(path, None, **query)
                assert answer.status_code in (200, 400), (query, answer.text)


# -- one


@each_engine
async def test_a_job_is_shown_with_its_tag(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        job = await here.shop.echo.submit({"a": [1, None]})
        answer = await here.get(f"/{job.id}")
        assert answer.status_code == 200
        assert answer.json() == (await job.refresh()).to_dict()
        tag = answer.headers["etag"]
        assert answer.headers["cache-control"] == "private, no-cache"
        for known in (tag, f"W/{tag}", f'"other", W/{tag} , "x"', "*"):
            same = await here.get(f"/{job.id}", {"If-None-Match": known})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag), known
        for other in ('"other"', tag.strip('"'), f'"{tag}', ""):
            assert (await here.get(f"/{job.id}", {"If-None-Match": other})).status_code == 200, other
        await here.work()
        changed = await here.get(f"/{job.id}", {"If-None-Match": tag})
        assert (changed.status_code, changed.json()["status"]) == (200, "completed")
        assert changed.headers["etag"] != tag


async def test_the_tag_differs_when_a_job_has_become_due(tmp_path: Path) -> None:
    async with opened("memory", tmp_path) as here:
        job = await here.shop.echo.options(delay=2).submit()
        first = await here.get(f"/{job.id}")
        assert first.json()["status"] == "scheduled"
        second = await here.get(f"/{job.id}", {"If-None-Match": first.headers["etag"]}, wait=30)
        assert (second.status_code, second.json()["status"]) == (200, "queued")


async def test_head_is_get_without_a_body(open_: Open) -> None:
    job = await open_.shop.echo.submit()
    get = await open_.get(f"/{job.id}")
    head = await open_.served.client.head(f"/api/jobs/{job.id}")
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-type", "content-length", "cache-control"):
        assert head.headers[name] == get.headers[name]
    assert (await open_.served.client.head(f"/api/jobs/{uuid4()}")).status_code == 404
    lines = await open_.served.client.head(f"/api/jobs/{job.id}/logs", headers=LINES)
    assert (lines.status_code, lines.content) == (200, b"")
    assert lines.headers["content-type"] == "application/x-ndjson"


@each_engine
async def test_wait_is_answered_when_the_job_changes(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        job = await here.shop.echo.submit(7)
        tag, seen = (await here.get(f"/{job.id}")).headers["etag"], list[str]()
        async with here.shop.app.worker():
            while not seen or seen[-1] != "completed":
                answer = await here.get(f"/{job.id}", {"If-None-Match": tag}, wait=50)
                assert answer.status_code == 200
                tag = answer.headers["etag"]
                seen.append(answer.json()["status"])
        assert answer.json()["result"] == 7


async def test_wait_that_sees_no_change_is_304(open_: Open) -> None:
    job = await open_.shop.echo.submit()
    tag = (await open_.get(f"/{job.id}")).headers["etag"]
    assert (await open_.get(f"/{job.id}", {"If-None-Match": tag}, wait=0.05)).status_code == 304
    assert (await open_.get(f"/{job.id}", wait=50)).status_code == 200  # there is nothing it could be the same as
    await open_.work()
    tag = (await open_.get(f"/{job.id}")).headers["etag"]
    assert (await open_.get(f"/{job.id}", {"If-None-Match": tag}, wait=50)).status_code == 304  # it has ended


@pytest.mark.parametrize("wait", ["61", "-1", "nan", "inf", "long"])
async def test_nobody_waits_for_longer_than_a_minute(open_: Open, wait: str) -> None:
    job = await open_.shop.echo.submit()
    for path in ("", "/result"):
        answer = await open_.get(f"/{job.id}{path}", wait=wait)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "wait")


async def _waiting(here: Open, job: JobHandle[Any]) -> asyncio.Task[httpx2.Response]:
    """A request that waits for a job, and has begun to."""
    tag = (await here.get(f"/{job.id}")).headers["etag"]
    task = asyncio.create_task(here.get(f"/{job.id}", {"If-None-Match": tag}, wait=50))
    await until(lambda: _followed(here, job.id))
    return task


def _followed(here: Open, id: UUID) -> bool:
    return str(id) in here.shop.app.session.watcher._followers


async def test_a_hub_that_drains_answers_whoever_waits(open_: Open) -> None:
    job = await open_.shop.echo.submit()
    task = await _waiting(open_, job)
    open_.served.hub.draining.set()
    assert (await task).status_code == 304
    assert (await open_.get(f"/{job.id}/result", wait=50)).status_code == 409  # and nobody begins to


async def test_nobody_is_followed_for_a_client_that_left(open_: Open) -> None:
    job = await open_.shop.echo.submit()
    task = await _waiting(open_, job)
    task.cancel()
    await until(lambda: not _followed(open_, job.id))


# -- the result


@each_engine
async def test_a_result_is_what_the_handler_returned(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        values: list[Any] = [None, 0, "", [], {"a": [1.5, None]}, "ü"]
        for value in values:
            job = await here.shop.echo.submit(value)
            waiting = await here.get(f"/{job.id}/result")
            assert (waiting.status_code, waiting.json()["type"].rpartition("/")[2]) == (409, "not-ended")
            assert waiting.headers["retry-after"] == "1"
            await here.work()
            answer = await here.get(f"/{job.id}/result")
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert answer.json() == value
            again = await here.get(f"/{job.id}/result", {"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


async def test_a_job_without_a_result_says_why(open_: Open) -> None:
    failed, cancelled = await open_.shop.fail.submit("out of paper"), await open_.shop.echo.submit()
    await cancelled.cancel()
    await open_.work()
    for job, kind, text in ((failed, "failed", "ValueError: out of paper"), (cancelled, "cancelled", "(user)")):
        answer = await open_.get(f"/{job.id}/result", wait=50)
        assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (409, kind)
        assert text in answer.json()["detail"]
        assert answer.json()["job_id"] == str(job.id)


async def test_a_result_is_waited_for(open_: Open) -> None:
    async with open_.shop.app.worker():
        job = await open_.shop.wait.submit()
        task = asyncio.create_task(open_.get(f"/{job.id}/result", wait=50))
        await until(lambda: _followed(open_, job.id))
        open_.shop.go_on.set()
        assert (await task).json() == "done"


# -- what it left


async def test_the_history_of_a_job(open_: Open) -> None:
    job = await open_.shop.fail.submit("x")
    await open_.work()
    await job.retry(by="me")
    answer = (await open_.get(f"/{job.id}/history")).json()
    assert answer == (await open_.shop.app.jobs.history(job.id)).to_dict()
    assert [one["outcome"] for one in answer["attempts"]] == ["failed"]
    assert [(one["verb"], one["by"]) for one in answer["events"]] == [("retry", "me")]


@each_engine
async def test_logs_are_read_by_cursor_and_as_lines(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        job = await here.shop.tell.submit(5)
        assert (await here.get(f"/{job.id}/logs")).json() == {"items": [], "cursor": "0.0"}
        await here.work()
        first = (await here.get(f"/{job.id}/logs", limit=2)).json()
        assert [line["message"] for line in first["items"]] == ["line 1", "line 2"]
        rest = (await here.get(f"/{job.id}/logs", cursor=first["cursor"])).json()
        assert [line["message"] for line in rest["items"]] == ["line 3", "line 4", "line 5"]
        assert rest["cursor"] is None
        lines = await here.get(f"/{job.id}/logs", LINES, cursor=first["cursor"])
        assert lines.headers["content-type"] == "application/x-ndjson"
        assert [msgspec.json.decode(line) for line in lines.text.splitlines()] == rest["items"]
        assert (await here.get(f"/{job.id}/logs", LINES, attempt=2)).text == ""


@each_engine
async def test_items_are_read_by_cursor_and_as_lines(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MAX_HUB_PAGE_JOBS", 2)  # so that the lines take several pages
    async with opened(kind, tmp_path) as here:
        job = await here.shop.stream.submit(5)
        await here.work()
        first = (await here.get(f"/{job.id}/items", limit=2)).json()
        assert first == {
            "items": [
                {"value": "item 1", "attempt": 1, "number": 1, "restarted": False},
                {"value": "item 2", "attempt": 1, "number": 2, "restarted": False},
            ],
            "cursor": "1.2",
        }
        rest = (await here.get(f"/{job.id}/items", cursor="1.2")).json()
        assert ([item["value"] for item in rest["items"]], rest["cursor"]) == (["item 3", "item 4", "item 5"], None)
        lines = (await here.get(f"/{job.id}/items", LINES | {"Accept": "text/html, application/x-ndjson;q=0.9"})).text
        assert [msgspec.json.decode(line)["value"] for line in lines.splitlines()] == [f"item {n}" for n in range(1, 6)]


async def test_a_cursor_that_is_none_is_named(open_: Open) -> None:
    job = await open_.shop.echo.submit()
    for path in ("logs", "items"):
        for headers in ({}, LINES):
            answer = await open_.get(f"/{job.id}/{path}", headers, cursor="x")
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "cursor")


async def test_what_is_given_as_lines_is_documented_so(open_: Open) -> None:
    paths = (await open_.served.client.get("/openapi.json")).json()["paths"]
    for path, method in (("{id}/logs", "get"), ("{id}/items", "get"), ("act", "post")):
        operation = paths[f"/api/jobs/{path}"][method]
        assert {*operation["responses"]["200"]["content"]} == {"application/json", "application/x-ndjson"}
        assert {*operation.get("requestBody", {}).get("content", {})} <= {"application/json"}
    assert "If-None-Match" in {one["name"] for one in paths["/api/jobs/{id}"]["get"]["parameters"]}


# -- explanations


@each_engine
async def test_an_explanation_is_text_and_facts(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        job = await here.shop.echo.submit()
        answer = (await here.get(f"/{job.id}/explain")).json()
        assert answer["text"] == " ".join(fact["text"] for fact in answer["facts"])
        assert {"queued", "no_worker"} <= {fact["code"] for fact in answer["facts"]}
        assert "+00:00" in answer["text"]  # whatever the zone of the machine is


async def test_a_customer_is_told_of_its_own_jobs_alone(open_: Open) -> None:
    shop, app = open_.shop, open_.shop.app
    await app.queues.set("narrow", max_concurrency=2)
    async with app.worker(concurrency=2):
        held = [await shop.wait.options(customer=one, queue="narrow").submit() for one in ("ann", "bob")]
        await until(lambda: _run(held))
        stuck = await shop.echo.options(customer="ann", queue="narrow").submit()
        after = await shop.echo.options(customer="ann", after=[job.id for job in held]).submit()
        full = await open_.get(f"/{stuck.id}/explain")
        assert all(str(job.id) in full.text for job in held)
        own = await open_.get(f"/{stuck.id}/explain", ANN)
        assert (str(held[0].id) in own.text, str(held[1].id) in own.text) == (True, False)
        assert "has 2" in own.json()["text"]
        waits = (await open_.get(f"/{after.id}/explain", ANN)).json()
        [fact] = [fact for fact in waits["facts"] if fact["code"] == "waiting"]
        assert f"wait {held[0].id} (running)" in fact["text"]
        assert "a job of somebody else" in fact["text"]
        assert str(held[1].id) not in fact["text"]
        assert fact["data"]["waits_for"][1] == {"id": str(held[1].id), "task": None, "status": None}
        runs = await open_.get(f"/{held[0].id}/explain", ANN)
        assert "pid" not in runs.text
        assert "pid" in (await open_.get(f"/{held[0].id}/explain")).text
        shop.go_on.set()


async def _run(jobs: list[JobHandle[Any]]) -> bool:
    return all([(await job.refresh()).status == "running" for job in jobs])


# -- whose


PATHS = ("", "/result", "/history", "/logs", "/items", "/explain", "/children")


@each_engine
async def test_foreign_jobs_are_answered_like_absent_ones(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as here:
        mine = await here.shop.echo.options(customer="ann").submit("secret")
        other = await here.shop.echo.options(customer="bob").submit("secret")
        nobodys = await here.shop.echo.submit("secret")
        absent = SystemDice().new_id(datetime.now(UTC))
        await here.work()
        for path in PATHS:
            assert (await here.get(f"/{mine.id}{path}", ANN)).status_code == 200
            expected = await here.get(f"/{absent}{path}", ANN)
            assert expected.status_code == 404
            for foreign in (other, nobodys):
                answer = await here.get(f"/{foreign.id}{path}", ANN)
                assert answer.status_code == 404
                assert answer.text.replace(str(foreign.id), str(absent)) == expected.text
                assert {*answer.headers} == {*expected.headers}
        assert ids(await here.get("", ANN)) == ids(await here.get("", ANN, text="secret")) == [str(mine.id)]
        assert (await here.get("/count", ANN)).json() == {"count": 1}
        assert (await here.get("", ANN, customer="bob")).status_code == 403
        assert (await here.get("/count", ANN, customer_id="bob")).status_code == 403
        assert ids(await here.get("", ANN, customer="ann")) == [str(mine.id)]


async def test_children_of_another_customer_are_not_listed(open_: Open) -> None:
    app = open_.shop.app

    @app.task
    async def parent() -> None:
        for customer in ("ann", "bob"):
            await open_.shop.echo.options(customer=customer).submit()

    job = await parent.options(customer="ann").submit()
    await open_.work()
    assert len(ids(await open_.get(f"/{job.id}/children"))) == 2
    own = (await open_.get(f"/{job.id}/children", ANN)).json()["items"]
    assert [child["customer"] for child in own] == ["ann"]


async def test_an_old_id_is_gone_whosever_it_is(open_: Open) -> None:
    draft = await open_.shop.app.draft("echo", {}, customer="bob")
    draft.id = SystemDice().new_id(datetime.now(UTC) - timedelta(days=8))
    await draft.submit()
    absent = SystemDice().new_id(datetime.now(UTC) - timedelta(days=8))
    for path in PATHS:
        for id in (draft.id, absent):
            assert (await open_.get(f"/{id}{path}", ANN)).status_code == 410
        assert (await open_.get(f"/{absent}{path}")).status_code == 410
    assert (await open_.get(f"/{draft.id}", BOB)).status_code == 200


@pytest.mark.parametrize("text", ["7", "job-abc123", "%00", "x" * 36])
async def test_what_is_no_id_is_not_found(open_: Open, text: str) -> None:
    for path in PATHS:
        assert (await open_.get(f"/{text}{path}")).status_code == 404
