"""The events of a job and the feed, over a real server on a real port."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.types import Message

from headrace.core.updates import ResumeToken
from headrace.hub.auth.caller import LOCAL
from headrace.hub.live.connections import REVOKED
from headrace.hub.live.operations import OPERATIONS, EventsQuery, FeedQuery
from headrace.hub.live.sse import EventStream
from headrace.hub.server.operation import OperationRequest
from tests.hub.live.doing import Doing
from tests.hub.live.listening import listening
from tests.hub.serving import serving
from tests.support.apps import ENGINES, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
def doing(request: pytest.FixtureRequest, tmp_path: Path) -> Doing:
    return Doing(url_of(request.param, tmp_path))


# One job


async def test_a_job_is_followed_from_its_submit_to_its_end(doing: Doing) -> None:
    async with serving(doing.app) as hub:
        job = await doing.work.submit(4)
        async with listening(hub, f"/api/jobs/{job.id}/events") as stream:
            snapshot = await stream.next()
            assert snapshot is not None
            assert snapshot.name == "snapshot"
            assert snapshot.data["job"]["status"] == "queued"
            assert (await stream.until("position")).data["position"] == 1
            async with doing.app.worker():
                await stream.until("status", status="running", attempt=1)
                told = await stream.until("progress", progress=40)
                assert told.data["message"] == "under way"
                mark = ResumeToken.read(told.id or "")
                assert mark is not None
                assert mark.at == (await job.refresh()).updated_at, "its id says that it was told"
                doing.gate.set()
                rest = await stream.rest()
        assert [one.data["message"] for one in rest if one.name == "log"][-1] == "done"
        end = rest[-1]
        assert (end.name, end.data["status"], end.data["ended"], end.data["result"]) == ("status", "completed", True, 8)


async def test_the_headers_ask_proxies_to_pass_each_event_on(doing: Doing) -> None:
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        async with listening(hub, f"/api/jobs/{job.id}/events") as stream:
            headers = stream.answer.headers
            assert headers["content-type"] == "text/event-stream; charset=utf-8"
            assert "no-transform" in headers["cache-control"]
            assert headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("feed", [False, True], ids=["job", "feed"])
async def test_a_stream_in_which_nothing_happens_has_comments(
    feed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("headrace.http.sse", "headrace.hub.live.operations"):
        monkeypatch.setattr(f"{module}.BEAT_SECONDS", 0.05)
    doing = Doing(url_of("memory", tmp_path))
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        async with listening(hub, "/api/events" if feed else f"/api/jobs/{job.id}/events") as stream:
            reading = asyncio.create_task(stream.rest())
            await until(lambda: stream.comments.count("still here") >= 3)
            reading.cancel()


async def test_a_job_that_has_ended_is_told_whole_and_the_stream_ends(doing: Doing) -> None:
    doing.gate.set()
    async with serving(doing.app) as hub, doing.app.worker():
        job = await doing.work.submit(1)
        await job.result(timeout=30)
        async with listening(hub, f"/api/jobs/{job.id}/events") as stream:
            events = await stream.rest()
    names = [one.name for one in events]
    assert names[0] == "snapshot"
    assert [one.data["message"] for one in events if one.name == "log"] == ["begun with 1", "done"]
    assert [one["outcome"] for one in events[0].data["attempts"]] == ["completed"]
    assert names[-1] == "status"
    assert events[-1].data["ended"] is True


async def test_a_short_job_is_told_to_have_started_and_ended(doing: Doing) -> None:
    async with serving(doing.app) as hub:
        job = await doing.quick.submit(1)
        async with listening(hub, f"/api/jobs/{job.id}/events") as stream:
            await stream.next()
            async with doing.app.worker():
                statuses = [one.data["status"] for one in await stream.rest() if one.name == "status"]
    assert [one for one in statuses if one != "accepted"] == ["running", "completed"]


async def test_who_lost_the_connection_before_the_last_event_is_told_the_end(tmp_path: Path) -> None:
    doing = Doing(url_of("sqlite", tmp_path))
    async with serving(doing.app) as hub:
        job = await doing.quick.submit(1)
        path = f"/api/jobs/{job.id}/events"
        async with listening(hub, path) as stream:
            first = await stream.next()
            async with doing.app.worker():
                events = await stream.rest()
        for seen in (first, *events[:-1]):
            assert seen is not None
            assert seen.id is not None
            async with listening(hub, path, last_event_id=seen.id) as stream:
                assert (await stream.rest())[-1].data["ended"] is True


async def test_an_attempt_that_fails_is_told_as_a_retry_and_the_last_as_the_end(doing: Doing) -> None:
    async with serving(doing.app) as hub:
        job = await doing.fail.submit("no luck")
        async with listening(hub, f"/api/jobs/{job.id}/events") as stream:
            await stream.next()
            async with doing.app.worker():
                events = await stream.rest()
    retry = next(one for one in events if one.name == "retry")
    assert (retry.data["attempt"], retry.data["error"]["message"]) == (1, "no luck")
    assert events[-1].data["status"] == "failed"
    assert events[-1].data["error"]["type"] == "ValueError"


async def test_items_of_a_stream_are_told_with_their_numbers(doing: Doing) -> None:
    doing.gate.set()
    async with serving(doing.app) as hub, doing.app.worker():
        job = await doing.count.submit(3)
        async with listening(hub, f"/api/jobs/{job.id}/events") as stream:
            items = [one.data for one in await stream.rest() if one.name == "item"]
    assert [(one["attempt"], one["number"], one["value"]) for one in items] == [(1, 1, 0), (1, 2, 1), (1, 3, 2)]


async def test_a_resume_tells_what_happened_meanwhile_and_nothing_twice(doing: Doing) -> None:
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        path = f"/api/jobs/{job.id}/events"
        async with doing.app.worker():
            async with listening(hub, path) as stream:
                seen = await stream.until("log", message="begun with 1")
            assert seen.id is not None
            doing.gate.set()
            await job.result(timeout=30)
        async with listening(hub, path, last_event_id=seen.id) as stream:
            events = await stream.rest()
        assert [one.data["message"] for one in events if one.name == "log"] == ["done"]
        assert events[0].data["job"]["status"] == "completed"
        assert [one["outcome"] for one in events[0].data["attempts"]] == ["completed"]
        # Whoever comes again with the last id is told that there is nothing more, as browsers understand it.
        last = events[-1].id
        assert last is not None
        assert (await hub.client.get(path, headers={"last-event-id": last})).status_code == 204
        assert (await hub.client.get(path, params={"since": last})).status_code == 204


async def test_a_resume_tells_acts_since(doing: Doing) -> None:
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        path = f"/api/jobs/{job.id}/events"
        await doing.app.jobs.handle(job.id).reprioritise(70, by="ann")
        async with listening(hub, path) as stream:
            first = await stream.next()
        assert first is not None
        assert first.id is not None
        assert [one["verb"] for one in first.data["acts"]] == ["reprioritise"]
        await doing.app.jobs.handle(job.id).cancel(by="bob")
        async with listening(hub, path, last_event_id=first.id) as stream:
            events = await stream.rest()
        assert [(one["verb"], one["by"]) for one in events[0].data["acts"]] == [("cancel", "bob")]
        assert events[-1].data["status"] == "cancelled"


@pytest.mark.parametrize("id", ["nonsense", "1-2", "9" * 400, "1-1-1.1-1.1-1"])
async def test_an_id_that_is_none_tells_everything(id: str, tmp_path: Path) -> None:
    doing = Doing(url_of("memory", tmp_path))
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        async with listening(hub, f"/api/jobs/{job.id}/events", last_event_id=id) as stream:
            first = await stream.next()
            assert first is not None
            assert first.name == "snapshot"
            assert first.id is not None
            assert ResumeToken.read(first.id) is not None


async def test_a_job_that_does_not_exist_is_absent(tmp_path: Path) -> None:
    doing = Doing(url_of("memory", tmp_path))
    async with serving(doing.app) as hub:
        assert (await hub.client.get("/api/jobs/nothing/events")).status_code == 404
        missing = await hub.client.get("/api/jobs/00000000-0000-7000-8000-000000000000/events")
        assert missing.status_code in (404, 410)


async def test_however_many_follow_a_job_the_store_is_asked_once(tmp_path: Path) -> None:
    doing = Doing(url_of("sqlite", tmp_path))
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        asked = []
        get = doing.app.session.engine.jobs.get

        async def counted(ids: list[object]) -> object:
            asked.extend(ids)
            return await get(ids)  # type: ignore[arg-type]

        async def follow() -> None:
            async with listening(hub, f"/api/jobs/{job.id}/events") as stream:
                opened.append(await stream.next())
                await stream.rest()

        opened: list[object] = []
        readers = [asyncio.create_task(follow()) for _ in range(20)]
        await until(lambda: len(opened) == 20)
        assert len(doing.app.session.followers) == 1
        doing.app.session.engine.jobs.get = counted  # type: ignore[assignment,method-assign]
        await doing.app.jobs.handle(job.id).cancel()
        await asyncio.gather(*readers)
        assert len(asked) < 10, "one question for each change, not for each reader"
        await until(lambda: not len(doing.app.session.followers))


async def test_who_leaves_is_forgotten(tmp_path: Path) -> None:
    doing = Doing(url_of("memory", tmp_path))
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        async with listening(hub, f"/api/jobs/{job.id}/events") as stream:
            await stream.next()
            assert len(hub.hub.live.connections) == 1
        await until(lambda: not len(hub.hub.live.connections))
        assert not len(doing.app.session.followers)


# All jobs


async def test_the_feed_tells_of_jobs_that_match(doing: Doing) -> None:
    async with serving(doing.app) as hub, listening(hub, "/api/events?task=quick&status=completed") as stream:
        others = await doing.fail.submit("no")
        job = await doing.quick.submit(7)
        async with doing.app.worker():
            told = await stream.until("job")
            await others.refresh()
        assert (told.data["id"], told.data["status"], told.data["result"]) == (str(job.id), "completed", 7)


async def test_a_filter_that_is_none_is_named(tmp_path: Path) -> None:
    async with serving(Doing(url_of("memory", tmp_path)).app) as hub:
        answer = await hub.client.get("/api/events?status=sleeping")
        assert answer.status_code == 400
        assert "sleeping" in answer.json()["detail"]
        assert (await hub.client.get("/api/events?colour=red")).json()["errors"][0]["field"] == "colour"


# What a stream leaves


@pytest.mark.parametrize("feed", [True, False], ids=["feed", "job"])
async def test_a_stream_that_is_over_before_it_began_leaves_nothing(feed: bool, tmp_path: Path) -> None:
    doing = Doing(url_of("memory", tmp_path))
    async with serving(doing.app) as hub:
        job, live = await doing.work.submit(1), hub.hub.live
        operation = next(one for one in OPERATIONS if one.name == ("feed" if feed else "job_events"))
        scope = {"type": "http", "method": "GET", "headers": [], "query_string": b"", "path": "/"}
        query = FeedQuery() if feed else EventsQuery()
        ask = OperationRequest(
            hub=hub.hub, caller=LOCAL, request=Request(scope), path={"id": str(job.id)}, query=query, body=None
        )
        stream = await operation.do(ask)
        assert isinstance(stream, EventStream)
        assert (len(live.feed._seats), len(doing.app.session.followers)) == ((1, 0) if feed else (0, 1))
        sent = list[Message]()

        async def send(message: Message) -> None:
            sent.append(message)
            stream.let_go(REVOKED)  # before the first event

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        await stream(scope, receive, send)
        assert (len(live.feed._seats), len(doing.app.session.followers)) == (0, 0)
        assert b'"status":401' in sent[-1]["body"]


@pytest.mark.parametrize("path", ["/api/events", "/api/jobs/{}/events"])
async def test_a_head_of_a_stream_ends(path: str, tmp_path: Path) -> None:
    doing = Doing(url_of("memory", tmp_path))
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        answer = await hub.client.head(path.format(job.id))
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert (await hub.client.get("/healthz")).status_code == 200, "on the same connection"
        assert not len(hub.hub.live.connections)
