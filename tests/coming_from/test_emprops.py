"""The whole EmProps page, over real sockets and HTTP, in its words, by a client and a worker that say what it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.hub import HubOptions
from tests.hub import page
from tests.hub.live.listening import Socket, connected
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.wrong_clock import MovedClock

ID = page.ID
ACCEPT = json.dumps({"type": "accept_job", "job_id": ID, "worker_id": "render-03"})
"""The page says that workers accept, and not with which words."""

WORDS = {"words": "emprops"}
QUIET = HubOptions(maintenance=False, webhooks=False)


class Client:
    """Submits the page's job, and hears what becomes of it."""

    def __init__(self, hub: Served, socket: Socket) -> None:
        self._hub, self._socket = hub, socket
        self.id = ""

    async def submit(self, **more: Any) -> None:
        """Submit it, with more of what the page says of retries, and subscribe to it."""
        answer = await self._hub.client.post("/api/jobs", json=json.loads(page.SUBMIT) | more)
        assert answer.status_code == 201, answer.text
        accepted = answer.json()
        assert accepted["status"] == "queued"
        self.id = accepted["job_id"]
        await self._socket.connection.send(
            json.dumps(json.loads(page.SUBSCRIBE) | {"job_id": self.id, "words": "emprops"})
        )
        assert (await self._socket.until("job_status"))["status"] == "queued"

    async def hears(self, type: str, **wanted: Any) -> dict[str, Any]:
        """The first message of this type with these fields."""
        return await self._socket.until(type, job_id=self.id, **wanted)

    async def cancels(self) -> dict[str, Any]:
        """Cancel it; the job then."""
        answer = await self._hub.client.post(f"/api/jobs/{self.id}/cancel", json={}, params=WORDS)
        assert answer.is_success, answer.text
        job: dict[str, Any] = answer.json()
        return job

    async def attempts(self) -> list[dict[str, Any]]:
        """The attempts on record."""
        found: list[dict[str, Any]] = (await self._hub.client.get(f"/api/jobs/{self.id}/history")).json()["attempts"]
        return found

    async def sees(self) -> dict[str, Any]:
        """The job."""
        job: dict[str, Any] = (await self._hub.client.get(f"/api/jobs/{self.id}", params=WORDS)).json()
        return job


class Worker:
    """Says what stands in the page."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.id = ""

    async def says(self, text: str, answer: str) -> dict[str, Any]:
        """Send a message of the page, about the job that it was given; the answer, which is of this type."""
        await self.socket.connection.send(text.replace(ID, self.id))
        return await self.socket.until(answer)

    async def claims(self) -> dict[str, Any]:
        """Claim a job and be given one."""
        assigned = await self.says(page.CLAIM, "job_assigned")
        self.id = assigned["job_id"]
        return assigned

    async def accepts(self) -> dict[str, Any]:
        """Accept it."""
        return await self.says(ACCEPT, "job_accepted")

    async def fails(self, **other: Any) -> dict[str, Any]:
        """Fail as the page says, or otherwise."""
        return await self.says(json.dumps(json.loads(page.FAIL) | other), "job_failed")


@asynccontextmanager
async def stage(app: App | str, options: HubOptions = QUIET) -> AsyncIterator[tuple[Client, Worker]]:
    """A hub, a client and a worker."""
    async with serving(app, options) as hub, connected(hub) as one, connected(hub) as other:
        yield Client(hub, one), Worker(other)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.every_engine
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_claim_assigned_accept_progress_complete(engine: str, tmp_path: Path) -> None:
    async with stage(url_of(engine, tmp_path)) as (client, worker):
        await client.submit()
        wanted = json.loads(page.SUBMIT)
        assigned = await worker.claims()
        assert (assigned["job_id"], assigned["job_type"], assigned["priority"]) == (client.id, "render_frame", 75)
        assert (assigned["payload"], assigned["claim_timeout"]) == (wanted["payload"], 30000)
        assert (
            assigned["requirements"].items()
            >= {name: wanted["requirements"][name] for name in ("service_type", "component", "hardware")}.items()
        )
        assert "estimated_processing_time" in assigned
        assert (await client.hears("job_status", status="assigned"))["attempt"] == 0
        await worker.accepts()
        await client.hears("job_status", status="accepted")

        acknowledged = await worker.says(page.PROGRESS, "progress_acknowledged")
        assert not acknowledged["cancel"]
        assert (await client.hears("job_status", status="in_progress"))["attempt"] == 1
        told, said = await client.hears("job_progress"), json.loads(page.PROGRESS)
        for name in ("progress", "message", "current_step", "estimated_completion", "connector_details"):
            assert told[name] == said[name]

        await worker.says(page.COMPLETE, "job_completed")
        await client.hears("job_status", status="completed", ended=True)
        result = json.loads(page.RESULT.replace(ID, client.id))
        assert (await client.hears("job_result"))["result"] == result
        job = await client.sees()
        assert (job["status"], job["result"], job["attempt"]) == ("completed", result, 1)
        again = await worker.says(page.COMPLETE, "job_completed")
        assert again["job_id"] == client.id
        assert (await client.sees())["rev"] == job["rev"]


@pytest.mark.every_engine
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_failure_is_retried_after_the_delays_of_the_page(engine: str, tmp_path: Path) -> None:
    clock, retry = MovedClock(), json.loads(page.RETRY)
    async with stage(App(url_of(engine, tmp_path), clock=clock)) as (client, worker):
        await client.submit(**retry)
        for attempt, delay in enumerate(retry["retry_delays"], 1):
            await worker.claims()
            await worker.accepts()
            await worker.says(page.PROGRESS, "progress_acknowledged")
            failed = await worker.fails()
            assert failed["status"] == "retrying"
            [*_, last] = await client.attempts()
            assert (_moment(failed["retry_at"]) - _moment(last["finished_at"])).total_seconds() == delay
            told = await client.hears("job_retry", attempt=attempt)
            assert (told["outcome"], told["retry_at"]) == ("failed", failed["retry_at"])
            assert (told["error"]["type"], told["error"]["message"]) == (
                "ServiceTimeoutError",
                "no answer from the renderer",
            )
            clock.advance(delay / 2)
            await worker.says(page.CLAIM, "no_job")
            clock.advance(delay / 2)
        await worker.claims()
        await worker.accepts()
        failed = await worker.fails()  # its start is implied
        assert (failed["status"], failed["retry_at"]) == ("failed", None)
        assert (await client.hears("job_error"))["reason"] == "retries_exhausted"
        job = await client.sees()
        assert (job["status"], job["attempt"]) == ("failed", 4)
        assert job["error"]["details"].items() >= json.loads(page.FAIL)["error_details"].items()
        await worker.says(page.CLAIM, "no_job")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"retry": False}, id="the worker says so"),
        *(
            pytest.param({"error_details": {"error_type": name}}, id=name)
            for name in json.loads(page.RETRY)["no_retry_conditions"]
        ),
        pytest.param({"error_details": {"error_type": "SomethingElse"}}, id="it is none of the conditions"),
    ],
)
async def test_a_failure_that_is_not_retried(said: dict[str, Any], tmp_path: Path) -> None:
    async with stage(url_of("sqlite", tmp_path)) as (client, worker):
        await client.submit(**json.loads(page.RETRY))
        await worker.claims()
        await worker.accepts()
        failed = await worker.fails(**said)
        assert (failed["status"], failed["retry_at"]) == ("failed", None)
        assert (await client.hears("job_error"))["reason"] == "non_retryable"
        await worker.says(page.CLAIM, "no_job")


@pytest.mark.parametrize("worker_says", ["that it failed", "that it is done", "nothing"])
async def test_a_time_out_is_retried_as_the_page_says(
    worker_says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BEAT", "0.5")  # so that deadlines are looked at often
    clock = MovedClock()
    async with stage(App(url_of("sqlite", tmp_path), clock=clock), HubOptions(webhooks=False)) as (client, worker):
        await client.submit(**json.loads(page.RETRY))  # its conditions are about errors, and name no time-out
        await worker.claims()
        await worker.accepts()
        await worker.says(page.PROGRESS, "progress_acknowledged")
        clock.advance(15 * 60)
        told = await worker.socket.until("cancel_job")
        assert (told["job_id"], told["reason"]) == (client.id, "timeout")
        if worker_says == "that it failed":
            assert (await worker.fails())["status"] == "retrying"
        elif worker_says == "that it is done":
            await worker.says(page.COMPLETE, "job_completed")
            await client.hears("job_status", status="completed")
            return
        else:
            clock.advance(10)  # the slack that a worker has to say so itself
        retry = await client.hears("job_retry", attempt=1)
        assert (retry["outcome"], retry["error"]["type"]) == ("timed_out", "Timeout")
        [attempt] = await client.attempts()
        assert (_moment(retry["retry_at"]) - _moment(attempt["finished_at"])).total_seconds() == 5
        if worker_says == "nothing":
            await worker.says(page.COMPLETE, "stale_job")
        assert (await client.sees())["charged"] == 1


async def test_a_job_is_cancelled_while_it_is_queued(tmp_path: Path) -> None:
    async with stage(url_of("sqlite", tmp_path)) as (client, worker):
        await client.submit()
        await client.cancels()
        assert (await client.hears("job_status", ended=True))["status"] == "cancelled"
        await worker.says(page.CLAIM, "no_job")


async def test_a_job_is_cancelled_while_it_is_assigned(tmp_path: Path) -> None:
    async with stage(url_of("sqlite", tmp_path)) as (client, worker):
        await client.submit()
        await worker.claims()
        await client.cancels()
        assert (await client.hears("job_status", ended=True))["status"] == "cancelled"
        await worker.says(ACCEPT, "stale_job")


@pytest.mark.parametrize("status", ["accepted", "in_progress"])
@pytest.mark.parametrize("then", ["fails", "completes"])
async def test_a_job_is_cancelled_in_the_hands_of_its_worker(status: str, then: str, tmp_path: Path) -> None:
    async with stage(url_of("sqlite", tmp_path)) as (client, worker):
        await client.submit(**json.loads(page.RETRY))
        await worker.claims()
        await worker.accepts()
        if status == "in_progress":
            await worker.says(page.PROGRESS, "progress_acknowledged")
        await client.hears("job_status", status=status)
        await client.cancels()
        assert (await worker.socket.until("cancel_job"))["job_id"] == client.id
        assert (await client.hears("job_status", status=status))["cancel_requested_at"] is not None
        assert (await worker.says(page.PROGRESS, "progress_acknowledged"))["cancel"]
        if then == "fails":
            assert (await worker.fails())["status"] == "cancelled"
            assert (await client.hears("job_status", ended=True))["reason"] == "user"
        else:
            await worker.says(page.COMPLETE, "job_completed")
            assert (await client.hears("job_status", ended=True))["status"] == "completed", "too late to cancel"
