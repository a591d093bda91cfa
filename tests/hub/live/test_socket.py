"""Sockets: messages and answers, over a real server on a real port."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
import websockets

from headrace.errors import Unavailable
from headrace.hub import HubOptions
from headrace.runtime.watch.followers import Reader
from tests.hub.live.doing import Doing
from tests.hub.live.listening import connected
from tests.hub.serving import serving
from tests.support.apps import ENGINES, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
def doing(request: pytest.FixtureRequest, tmp_path: Path) -> Doing:
    return Doing(url_of(request.param, tmp_path))


@pytest.fixture
def here(tmp_path: Path) -> Doing:
    return Doing(url_of("memory", tmp_path))


async def test_a_job_is_followed_from_its_submit_to_its_result(doing: Doing) -> None:
    async with serving(doing.app) as hub, connected(hub) as socket:
        job = await doing.work.submit(4)
        answer = await socket.ask("subscribe_job", job_id=str(job.id))
        assert (answer["type"], answer["status"], answer["job_id"]) == ("job_status", "queued", str(job.id))
        assert (await socket.until("queue_position"))["position"] == 1
        async with doing.app.worker():
            await socket.until("job_status", status="running", attempt=1)
            assert (await socket.until("job_progress", progress=40))["message"] == "under way"
            doing.gate.set()
            await socket.until("job_status", status="completed", ended=True)
            assert (await socket.until("job_result"))["result"] == 8
        await until(lambda: not len(doing.app.session.followers))


async def test_who_waits_hears_that_the_queue_moves(doing: Doing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.runtime.watch.positions.POLL_FIRST_SECONDS", 0.05)
    async with serving(doing.app) as hub, connected(hub) as socket:
        first, second, third = [await doing.work.submit(n) for n in range(3)]
        await socket.ask("subscribe_job", job_id=str(third.id))
        assert (await socket.until("queue_position"))["position"] == 3
        for job, left in ((first, 2), (second, 1)):
            await job.cancel()
            told = await socket.until("queue_position")
            assert (told["job_id"], told["position"]) == (str(third.id), left)


async def test_a_failure_is_told_as_retry_and_error(doing: Doing) -> None:
    async with serving(doing.app) as hub, connected(hub) as socket:
        job = await doing.fail.submit("no luck")
        await socket.ask("subscribe_job", job_id=str(job.id))
        async with doing.app.worker():
            retry = await socket.until("job_retry")
            assert (retry["attempt"], retry["error"]["type"]) == (1, "ValueError")
            error = await socket.until("job_error")
            assert (error["status"], error["reason"]) == ("failed", "retries_exhausted")


async def test_one_that_ended_is_told_at_once(doing: Doing) -> None:
    async with serving(doing.app) as hub, connected(hub) as socket, doing.app.worker():
        job = await doing.quick.submit(3)
        await job.result(timeout=30)
        assert (await socket.ask("subscribe_job", job_id=str(job.id)))["status"] == "completed"
        assert (await socket.until("job_result"))["result"] == 3


async def test_after_unsubscribing_nothing_is_told(here: Doing) -> None:
    async with serving(here.app) as hub, connected(hub) as socket:
        job = await here.work.submit(4)
        await socket.ask("subscribe_job", job_id=str(job.id))
        await socket.ask("subscribe_job", job_id=str(job.id))  # a second time changes nothing
        assert (await socket.ask("unsubscribe_job", job_id=str(job.id)))["type"] == "unsubscribed"
        assert not len(here.app.session.followers)
        await here.app.jobs.handle(job.id).cancel()
        await socket.send("ping")
        assert (await socket.next())["type"] == "pong"


async def test_counts_are_told_when_they_change(doing: Doing) -> None:
    async with serving(doing.app) as hub, connected(hub) as socket:
        assert (await socket.ask("subscribe_stats"))["ledger"]["accepted"] == 0
        await doing.quick.submit(3)
        assert (await socket.until("stats"))["ledger"]["accepted"] == 1


async def test_answers_carry_the_id_of_the_message(here: Doing) -> None:
    async with serving(here.app) as hub, connected(hub) as socket:
        for id in ("a", 7, "x" * 256, "", 2**53 - 1, 1 - 2**53):
            await socket.send("ping", id=id)
            assert await socket.next() == {"type": "pong", "id": id}
        await socket.send("ping")
        assert await socket.next() == {"type": "pong"}
        await socket.send("subscribe_job", id="b", job_id=str(uuid4()))
        error = await socket.next()
        assert (error["type"], error["id"], error["problem"]["status"]) == ("error", "b", 404)


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ("[]", None),
        ("7", None),
        ("null", None),
        ('{"type": "dance"}', "type"),
        ('{"type": 7}', "type"),
        ("{}", "type"),
        ('{"type": "ping", "id": {}}', "id"),
        pytest.param('{"type": "ping", "id": "' + "x" * 257 + '"}', "id", id="a long id"),
        ('{"type": "ping", "id": true}', "id"),
        ('{"type": "ping", "id": 1.5}', "id"),
        ('{"type": "ping", "id": 9007199254740992}', "id"),
        ('{"type": "ping", "id": -9007199254740992}', "id"),
        ('{"type": "ping", "id": 1e400}', None),
        ('{"type": "ping", "id": 99999999999999999999999}', "id"),
        ('{"type": "ping", "volume": 1}', None),
        ('{"type": "subscribe_job"}', None),
        ('{"type": "subscribe_job", "job_id": 7}', "job_id"),
        ("[" * 5000 + "]" * 5000, None),
    ],
)
async def test_a_message_that_cannot_be_understood_is_answered_and_the_socket_stays(
    here: Doing, frame: str, field: str | None
) -> None:
    async with serving(here.app) as hub, connected(hub) as socket:
        await socket.connection.send(frame)
        error = await socket.next()
        assert (error["type"], error["problem"]["status"]) == ("error", 400)
        if field is not None:
            assert error["problem"]["errors"][0]["field"] == field
        await socket.send("ping")
        assert (await socket.next())["type"] == "pong"


@pytest.mark.parametrize("frame", ["", "{", "hello", b"\x00\x01", b"\xff\xfe", '{"type": "ping"'])
async def test_a_frame_that_is_no_json_closes_the_socket_after_the_answer(here: Doing, frame: str | bytes) -> None:
    async with serving(here.app) as hub, connected(hub) as socket:
        await socket.connection.send(frame)
        assert (await socket.next())["problem"]["status"] == 400
        assert await socket.closed() == 1003


async def test_too_large_a_frame_is_refused(here: Doing) -> None:
    async with serving(here.app, HubOptions(frame_most=100)) as hub, connected(hub) as socket:
        await socket.connection.send(json.dumps({"type": "ping", "id": "x" * 200}))
        assert await socket.closed() == 1009
        assert "limit of 100 bytes" in str(socket.connection.close_reason)


async def test_a_socket_has_so_many_subscriptions(here: Doing) -> None:
    async with serving(here.app, HubOptions(subscriptions=2)) as hub, connected(hub) as socket:
        jobs = [await here.work.submit(n) for n in range(3)]
        answers = [await socket.ask("subscribe_job", job_id=str(job.id)) for job in jobs]
        assert [one["type"] for one in answers] == ["job_status", "job_status", "error"]
        assert answers[2]["problem"]["status"] == 429


async def test_a_hub_has_so_many_sockets(here: Doing) -> None:
    async with serving(here.app, HubOptions(sockets=1)) as hub, connected(hub):
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with connected(hub):
                pass
        assert refused.value.response.status_code == 503
        assert "retry-after" in refused.value.response.headers
        job = await here.work.submit(1)
        assert (await hub.client.get(f"/api/jobs/{job.id}/events")).status_code == 503


async def test_a_socket_without_subscriptions_is_closed_when_it_is_silent(
    here: Doing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.hub.live.socket.IDLE_SECONDS", 0.05)
    async with serving(here.app) as hub, connected(hub) as socket:
        assert await socket.closed() == 1000
        job = await here.work.submit(1)
    async with serving(here.app) as hub, connected(hub) as socket:
        await socket.ask("subscribe_job", job_id=str(job.id))
        await here.app.jobs.handle(job.id).cancel()
        await socket.until("job_status", status="cancelled")


async def test_no_socket_is_opened_for_a_page_of_another_origin(here: Doing) -> None:
    async with serving(here.app) as hub:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with connected(hub, origin="https://evil.example"):
                pass
        assert refused.value.response.status_code == 403


async def test_a_subscription_that_fails_leaves_nothing(here: Doing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(self: Reader) -> None:
        raise Unavailable("the store at 10.1.2.3 is away")

    async with serving(here.app) as hub, connected(hub) as socket:
        job = await here.work.submit(1)
        monkeypatch.setattr(Reader, "take", away)
        answer = await socket.ask("subscribe_job", job_id=str(job.id))
        assert answer["problem"]["status"] == 503
        assert "10.1.2.3" not in answer["problem"]["detail"], "where the store is, is nobody's business"
        assert not len(here.app.session.followers)


async def test_a_subscription_is_told_in_its_words(here: Doing) -> None:
    async with serving(here.app) as hub, connected(hub) as socket:
        job = await here.work.submit(4)
        answer = await socket.ask("subscribe_job", job_id=str(job.id), words="jobmaster")
        assert answer["status"] == "AssignedToBucket"
        async with here.app.worker():
            await socket.until("job_status", status="Processing")
            assert (await socket.until("job_progress"))["status"] == "Processing"
            # Subscribed to again, it goes on in other words.
            assert (await socket.ask("subscribe_job", job_id=str(job.id), words="emprops"))["status"] == "in_progress"
            here.gate.set()
            await socket.until("job_status", status="completed", ended=True)
            assert (await socket.until("job_result"))["status"] == "completed"


async def test_counts_are_told_in_words_and_unknown_words_are_refused(here: Doing) -> None:
    async with serving(here.app) as hub, connected(hub) as socket:
        await here.work.submit(4)
        answer = await socket.ask("subscribe_stats", words="osqueue")
        assert answer["statuses"] == {"unclaimed": 1}
        await here.work.submit(5)
        assert (await socket.until("stats"))["statuses"] == {"unclaimed": 2}
        for type, fields in (("subscribe_job", {"job_id": str(uuid4())}), ("subscribe_stats", {})):
            answer = await socket.ask(type, words="klingon", **fields)
            assert (answer["type"], answer["problem"]["status"]) == ("error", 400)
            assert answer["problem"]["errors"][0]["field"] == "words"
