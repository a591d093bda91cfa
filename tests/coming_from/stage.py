"""A hub on which a published design is played: in its words, over HTTP, on a clock that is moved.

Nobody sweeps but the test: time passes from one look of the sweeper to its next, as long as the sweeper itself waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import httpx2

from headrace import App, Tasks
from headrace.hub import HubOptions
from headrace.maintenance import Sweeper
from headrace.testing import FakeClock
from tests.hub.serving import Served, serving
from tests.support.wrong_clock import MovedClock

__all__ = ["Stage", "Worker", "staged"]

HEARTBEAT_SECONDS = 10.0
"""How often a worker that lives says so, unless the design has another number."""


class Worker:
    """A worker that says over HTTP what the test says; while it lives, it beats."""

    def __init__(self, stage: Stage, name: str, token: str) -> None:
        self._stage, self.name, self.token = stage, name, token
        self.job: dict[str, Any] = {}
        """What it was assigned last."""
        self.lives = True

    async def claims(self, **fields: Any) -> dict[str, Any]:
        """Claim a job; the answer: ``job_assigned`` or ``no_job``."""
        found = await self._stage.work("claim_job", worker_id=self.name, token=self.token, **fields)
        if found["type"] == "job_assigned":
            self.job = found
        return found

    async def given(self, **fields: Any) -> str:
        """Claim a job, and be given one; its id."""
        found = await self.claims(wait=20, **fields)
        assert found["type"] == "job_assigned", found
        return str(found["job_id"])

    async def says(self, message: str, **fields: Any) -> dict[str, Any]:
        """Say something about the job that it was given."""
        return await self._stage.work(message, lease=self.job["lease"], **fields)

    async def says_late(self, message: str, **fields: Any) -> None:
        """Say something about a job that is no longer its own, and be refused."""
        answer = await self._stage.post(f"/api/work/{message}", {"lease": self.job["lease"], **fields})
        assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (409, "stale-job"), answer.text

    async def beats(self) -> None:
        """Give the sign of life of a worker, which says nothing of its jobs."""
        await self._stage.work("heartbeat", token=self.token)


class Stage:
    """A hub, its clock and its sweeper."""

    def __init__(
        self, hub: Served, clock: MovedClock | FakeClock, words: str, heartbeat: float = HEARTBEAT_SECONDS
    ) -> None:
        self.hub, self.clock, self.words, self._heartbeat = hub, clock, words, heartbeat
        self.seen: set[str] = set()
        """Every status that was shown, in the words of the design."""
        self._sweeper: Sweeper | None = None
        self._workers: list[Worker] = []

    # -- clients

    async def get(self, path: str, **query: Any) -> Any:
        """The document at this path; ``words``: those for its statuses."""
        answer = await self.hub.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any, **query: Any) -> httpx2.Response:
        """The answer to a request with a body."""
        return await self.hub.client.post(path, json=body, params=query)

    async def submit(self, **body: Any) -> str:
        """Submit a job; its id."""
        answer = await self.post("/api/jobs", body, words=self.words)
        assert answer.status_code == 201, answer.text
        self.seen.add(answer.json()["status"])
        return str(answer.json()["job_id"])

    async def act(self, id: str, action: str, **body: Any) -> Any:
        """Do something to a job; the job then."""
        answer = await self.post(f"/api/jobs/{id}/{action}", body, words=self.words)
        assert answer.is_success, answer.text
        return answer.json()

    async def job(self, id: str) -> Any:
        """The job as it is now."""
        found = await self.get(f"/api/jobs/{id}", words=self.words)
        self.seen.add(found["status"])
        return found

    async def status(self, id: str) -> str:
        """Its status now, in the words of the design."""
        return str((await self.job(id))["status"])

    async def found(self, word: str) -> set[str]:
        """The ids of the jobs that a filter by this word finds."""
        return {one["id"] for one in (await self.get("/api/jobs", status=word, words=self.words))["items"]}

    async def attempts(self, id: str) -> list[dict[str, Any]]:
        """The attempts on record."""
        found: list[dict[str, Any]] = (await self.get(f"/api/jobs/{id}/history"))["attempts"]
        return found

    # -- workers

    async def work(self, message: str, **fields: Any) -> dict[str, Any]:
        """The answer to a message of a worker."""
        answer = await self.post(f"/api/work/{message}", fields)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def worker(self, name: str, **fields: Any) -> Worker:
        """A worker that registers."""
        known = await self.work("register_worker", worker_id=name, **fields)
        made = Worker(self, name, known["token"])
        self._workers.append(made)
        return made

    async def runs(self) -> None:
        """Have a worker of the App run all that can run now."""
        await self.hub.app.worker(burst=True).run(signals=False)

    # -- time

    async def passes(self, seconds: float) -> None:
        """Let time pass: workers that live beat, and the sweeper looks when it would."""
        sweeper = self._sweeper = self._sweeper or self._new_sweeper()
        end, beat_at = self.clock.monotonic() + seconds, 0.0
        while True:
            if self.clock.monotonic() >= beat_at:
                beat_at = self.clock.monotonic() + self._heartbeat
                for worker in self._workers:
                    if worker.lives:
                        await worker.beats()
            pause = await sweeper.round()
            left = min(end, beat_at) - self.clock.monotonic()
            if end - self.clock.monotonic() <= 0:
                return
            self.clock.advance(max(min(pause, left), 0.0))

    async def jumps(self, seconds: float) -> None:
        """Let much time pass at once, in which nobody looks; then workers that live beat."""
        self.clock.advance(seconds)
        await self.passes(0)

    async def jumps_to(self, moment: str, before: float = 0.0) -> None:
        """Let time pass at once until then, or so many seconds before it."""
        due = datetime.fromisoformat(moment) - timedelta(seconds=before)
        await self.jumps(max(0.0, (due - self.clock.now()).total_seconds()))

    async def changes_after(self, id: str, seconds: float, since: str, late: float = 2.0) -> None:
        """Expect that the job keeps its status for so long ``since`` one of its moments, and not much longer."""
        job = await self.job(id)
        due = datetime.fromisoformat(job[since]) + timedelta(seconds=seconds)
        await self.passes_until(due - timedelta(seconds=1))
        assert (await self.job(id))["status"] == job["status"], f"not before {seconds} s"
        await self.passes_until(due + timedelta(seconds=late))
        assert (await self.job(id))["status"] != job["status"], f"by {seconds + late} s"

    async def passes_until(self, moment: datetime) -> None:
        """Let time pass until then."""
        await self.passes((moment - self.clock.now()).total_seconds())

    def _new_sweeper(self) -> Sweeper:
        session = self.hub.app.session
        return Sweeper(session.engine, session.writer, self.hub.app.host, self.hub.app.host.new_id())


@asynccontextmanager
async def staged(
    url: str, words: str, *, tasks: Tasks | None = None, heartbeat: float = HEARTBEAT_SECONDS, **options: Any
) -> AsyncIterator[Stage]:
    """A hub on this store, which no maintenance but that of the test sweeps.

    ``tasks``: those of its App, whose workers run them. Then the clock stands still between two moves, so that no
    backoff ends while a slow machine is about to look at it. Workers behind the hub need one that runs.
    """
    clock = MovedClock() if tasks is None else FakeClock()
    app = App(url, clock=clock)
    if tasks is not None:
        app.include(tasks)
    async with serving(app, HubOptions(maintenance=False, webhooks=False, **options)) as hub:
        yield Stage(hub, clock, words, heartbeat)
