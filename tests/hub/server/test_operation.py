"""Statuses in the words that a request asks for: at every operation that has statuses or is about jobs, and in no
other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headrace import App, Retry
from headrace.core.words import VOCABULARIES
from headrace.hub.openapi.document import document
from headrace.hub.operations import OPERATIONS
from tests.hub.live.listening import listening
from tests.hub.serving import Served, serving
from tests.support.until import until

PATHS = document(OPERATIONS)["paths"]
SCHEMAS = document(OPERATIONS)["components"]["schemas"]
ABOUT_JOBS = ("/api/jobs", "/api/batches")
"""A client may send its words with every request about these, also where the reply has no status."""


def mentions(schema: Any, seen: frozenset[str] = frozenset()) -> bool:
    """Whether what the document says of a body has a status in it."""
    match schema:
        case {"$ref": str(ref)} if (name := ref.rpartition("/")[2]) not in seen:
            return name == "Status" or mentions(SCHEMAS.get(name, {}), seen | {name})
        case dict():
            # Counts are keyed by status, and a filter is a text.
            fields = {*schema.get("properties", {})}
            is_counted = not fields.isdisjoint({"statuses", "counts"})
            return is_counted or fields >= {"status", "tag"} or any(mentions(one, seen) for one in schema.values())
        case list():
            return any(mentions(one, seen) for one in schema)
    return False


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in PATHS.items():
        for method, one in methods.items():
            yield method.upper(), path, one


def has_statuses(one: dict[str, Any]) -> bool:
    good = [answer for status, answer in one["responses"].items() if status < "300"]
    streams = any("text/event-stream" in answer.get("content", {}) for answer in good)
    filters = any(parameter["name"] == "status" for parameter in one.get("parameters", ()))
    return streams or filters or mentions(good) or mentions(one.get("requestBody", {}))


def takes_words(one: dict[str, Any]) -> bool:
    return any(parameter["name"] == "words" for parameter in one.get("parameters", ()))


def test_every_operation_that_has_statuses_or_is_about_jobs_takes_words() -> None:
    found = {one["operationId"] for _, _, one in operations() if has_statuses(one)}
    assert len(found) > 30
    about = {one["operationId"] for _, path, one in operations() if path.startswith(ABOUT_JOBS)}
    assert {"get_history", "get_logs", "get_items", "list_batches", "get_batch", "cancel_batch"} <= about - found
    assert {one["operationId"] for _, _, one in operations() if takes_words(one)} == found | about
    assert {"list_jobs", "count_jobs", "get_job", "feed", "job_events", "stats", "act_on_jobs", "list_queues"} <= found


async def test_other_words_than_the_known_are_refused_everywhere(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        for method, path, one in operations():
            place = re.sub(r"\{\w+\}", "x", path) + "?words=klingon"
            answer = await hub.client.request(method, place, json={} if method == "POST" else None)
            assert answer.status_code == 400, (place, answer.text)
            [fault] = answer.json()["errors"]
            assert fault["field"] == "words"
            known = f"words must be one of {', '.join(VOCABULARIES)}, not 'klingon'"
            assert (fault["message"] == known) == takes_words(one), place
        twice = await hub.client.get("/api/stats?words=emprops&words=osqueue")
        assert twice.json()["errors"][0] == {
            "field": "words",
            "message": "words is given 2 times, and may be given once",
        }


class World:
    """Jobs in six statuses behind a hub; the running one ends when the gate is opened."""

    def __init__(self, hub: Served, ids: dict[str, str], gate: asyncio.Event) -> None:
        self.hub, self.ids, self.gate = hub, ids, gate

    async def get(self, path: str, status: int = 200, headers: dict[str, str] | None = None) -> Any:
        answer = await self.hub.client.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else answer

    async def ask(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        answer = await self.hub.client.post(path, json={} if body is None else body, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer

    async def statuses(self, query: str) -> set[str]:
        return {job["status"] for job in (await self.get(f"/api/jobs?{query}"))["items"]}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    app, gate = App(f"sqlite:///{tmp_path}/jobs.db"), asyncio.Event()

    @app.task(retry=Retry(0))
    async def work(n: int) -> int:
        await gate.wait()
        return n

    @app.task(retry=Retry(0), timeout=0.02)
    async def overrun() -> None:
        await asyncio.Event().wait()

    @app.task(retry=Retry(0))
    async def fail() -> None:
        raise ValueError("no")

    @app.task(retry=Retry(1, backoff=[3600]))
    async def again() -> None:
        raise ValueError("not yet")

    async with serving(app) as hub, app.worker():
        made = [await overrun.submit(), await fail.submit(), await again.submit(), await work.submit(1)]
        later = await work.options(delay=3600).submit(2)
        gone = await work.options(delay=3600).submit(3)
        await gone.cancel()
        names = ("timeout", "failed", "retrying", "running", "scheduled", "cancelled")
        wanted = {"failed": 2, "retrying": 1, "running": 1, "scheduled": 1, "cancelled": 1}

        async def settled() -> bool:
            return dict((await app.stats.counts()).statuses) == wanted

        await until(settled)
        ids = dict(zip(names, (str(one.id) for one in (*made, later, gone)), strict=True))
        yield World(hub, ids, gate)
        gate.set()


async def test_what_is_shown_is_in_the_words_of_the_request(world: World) -> None:
    assert await world.statuses("") == {"failed", "retrying", "running", "scheduled", "cancelled"}
    assert await world.statuses("words=headrace") == await world.statuses("")
    assert await world.statuses("words=emprops") == {
        "timeout",
        "failed",
        "queued",
        "in_progress",
        "scheduled",
        "cancelled",
    }
    assert await world.statuses("words=jobmaster") == {"Failed", "HeldOnMaster", "Processing", "Cancelled"}
    job = await world.get(f"/api/jobs/{world.ids['timeout']}?words=emprops")
    assert (job["status"], job["reason"], job["id"]) == ("timeout", "timeout", world.ids["timeout"])
    ours, theirs = await world.get("/api/stats"), await world.get("/api/stats?words=osqueue")
    assert theirs["statuses"] == {"exhausted": 2, "unclaimed": 1, "in_progress": 1, "scheduled": 1, "cancelled": 1}
    assert theirs["ledger"] == ours["ledger"]
    [queue] = (await world.get("/api/queues?words=surefire"))["items"]
    assert queue["counts"] == {"Dead letter": 2, "Retrying": 1, "Running": 1, "Pending": 1, "Cancelled": 1}
    refused = await world.get(f"/api/jobs/{world.ids['running']}/result?words=emprops", status=409)
    assert refused["detail"].startswith("it is in_progress:")


FOUND: list[tuple[str, set[str]]] = [
    ("words=emprops&status=IN_Progress", {"running"}),
    ("words=emprops&status=timeout", {"timeout"}),
    ("words=emprops&status=timeout&reason=timeout", {"timeout"}),
    ("words=emprops&status=failed", {"timeout", "failed"}),
    ("words=emprops&status=failed&status=TIMEOUT", {"timeout", "failed"}),
    ("words=emprops&status=failed&reason=timeout", {"timeout"}),
    ("words=emprops&status=queued", {"retrying"}),
    ("words=surefire&status=dead%20letter&status=pending", {"timeout", "failed", "scheduled"}),
    ("words=jobmaster&status=HeldOnMaster", {"retrying", "scheduled"}),
    ("words=jobmaster&status=queued", set()),
    ("status=Running", {"running"}),
    ("status=in_progress", {"running"}),
]
"""What a query finds."""


async def test_a_word_finds_all_that_it_stands_for(world: World) -> None:
    for query, names in FOUND:
        found = (await world.get(f"/api/jobs?{query}"))["items"]
        assert {job["id"] for job in found} == {world.ids[name] for name in names}, query
        assert (await world.get(f"/api/jobs/count?{query}"))["count"] == len(names), query


async def test_words_that_no_filter_can_mean_are_refused(world: World) -> None:
    for query, field, text in (
        ("words=emprops&status=timeout&status=completed", "status", "timeout is a reason of failed, and stands alone"),
        ("words=emprops&status=timeout&reason=lost", "status", "timeout is the reason timeout: name no other"),
        ("words=emprops&status=queued&status=running", "status[1]", "it is one of pending, waiting, scheduled, queued"),
        ("status=unclaimed", "status[0]", "it is one of pending, waiting"),
    ):
        [fault] = (await world.get(f"/api/jobs?{query}", status=400))["errors"]
        assert fault["field"] == field
        assert text in fault["message"]
    body = {"act": "retry", "filter": {"status": ["timeout", "queued"]}}
    answer = await world.hub.client.post("/api/jobs/act?words=emprops", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "filter.status")


async def test_an_entity_tag_is_of_its_words(world: World) -> None:
    path = f"/api/jobs/{world.ids['failed']}"
    tags = {}
    for words in ("", "?words=headrace", "?words=emprops", "?words=surefire"):
        tags[words] = (await world.hub.client.get(path + words)).headers["etag"]
        known = await world.hub.client.get(path + words, headers={"If-None-Match": tags[words]})
        assert (known.status_code, known.headers["etag"]) == (304, tags[words])
    assert tags[""] == tags["?words=headrace"]
    assert len({*tags.values()}) == 3
    # A client that changes its words does not keep what it has in others.
    changed = await world.hub.client.get(f"{path}?words=emprops", headers={"If-None-Match": tags[""]})
    assert (changed.status_code, changed.json()["status"]) == (200, "failed")


async def test_what_is_waited_for_comes_in_words(world: World) -> None:
    path = f"/api/jobs/{world.ids['running']}?words=jobmaster"
    tag = (await world.hub.client.get(path)).headers["etag"]
    asking = asyncio.create_task(world.get(f"{path}&wait=30", headers={"If-None-Match": tag}))
    world.gate.set()
    assert (await asking)["status"] == "Succeeded"


async def test_acts_and_their_lines_are_in_words(world: World) -> None:
    job = (await world.ask(f"/api/jobs/{world.ids['retrying']}/cancel?words=asyncendpoints")).json()
    assert (job["status"], job["reason"]) == ("Canceled", "user")
    body = {"act": "discard", "filter": {"status": "TIMEOUT"}, "dry_run": True}
    assert (await world.ask("/api/jobs/act?words=emprops", body)).json() == {"count": 1}
    filter = {"status": "exhausted"}
    [line, *_] = (
        await world.ask(
            "/api/jobs/act?words=osqueue", {"act": "retry", "filter": filter}, accept="application/x-ndjson"
        )
    ).text.splitlines()
    assert '"status":"unclaimed"' in line
    body = {"act": "resolve", "error": "no", "filter": {"status": "Pending", "task": "work"}}
    verdicts = (await world.ask("/api/jobs/act?words=surefire", body)).json()["verdicts"]
    assert {one["status"] for one in verdicts} == {"Dead letter"}


async def test_events_and_the_feed_are_in_words(world: World) -> None:
    path = f"/api/jobs/{world.ids['running']}/events?words=jobmaster"
    feed = "/api/events?words=jobmaster&status=succeeded"
    async with listening(world.hub, path) as events, listening(world.hub, feed) as jobs:
        assert (await events.until("snapshot")).data["job"]["status"] == "Processing"
        world.gate.set()
        assert (await events.until("status", ended=True)).data["status"] == "Succeeded"
        assert (await jobs.until("job")).data["status"] == "Succeeded"


async def test_an_explanation_names_others_in_words(world: World) -> None:
    body = {"task": "work", "payload": {"n": 4}, "after": [world.ids["running"]]}
    made = (await world.ask("/api/jobs", body)).json()["job_id"]
    found = await world.get(f"/api/jobs/{made}/explain?words=emprops")
    assert '"status": "in_progress"' in str(found["facts"]).replace("'", '"')
