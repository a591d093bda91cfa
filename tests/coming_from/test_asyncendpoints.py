"""The lifecycle page of AsyncEndpoints, played over HTTP against a real server, row by row, in its words."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from headrace import App, Context, JobOptions, Retry
from headrace.endpoints.fastapi import JobRouter, status_router
from headrace.maintenance import Sweeper
from headrace.testing import FakeClock
from headrace.worker.worker import Worker
from tests.endpoints.serving import Served, serving
from tests.support.apps import url_of
from tests.support.servers.daemons import free_port
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

SHOWN = {"Queued", "Scheduled", "InProgress", "Completed", "Failed", "Canceled"}

START = datetime(2026, 1, 31, 8, tzinfo=UTC)


class Page:
    """A service whose jobs do as they are told, on a clock that is moved by hand, and a client of it."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock(START)
        self.jobs = App(url, clock=self.clock)
        self.seen: set[str] = set()
        """Every status that was shown."""
        router = JobRouter(self.jobs, words="asyncendpoints")
        self.go, self.fails = asyncio.Event(), True

        @router.post("/succeed/{n}")
        async def succeed(ctx: Context, n: int) -> int:
            ctx.progress(1)  # so its start is stored at once: the clock does not go on by itself
            await self.go.wait()
            return n * 2

        @router.post("/fail", job=JobOptions(retry=Retry(max_retries=4, jitter=False)))
        async def fail() -> str:
            if self.fails:
                raise ValueError("as it was told")
            return "at last"

        @router.post("/overrun", job=JobOptions(timeout=0.05, retry=Retry(give_up_on=[TimeoutError])))
        async def overrun() -> None:
            await asyncio.Event().wait()

        @router.post("/stuck", job=JobOptions(retry=Retry(give_up_on=[TimeoutError])))
        async def stuck(ctx: Context) -> None:
            ctx.progress(1)
            await asyncio.Event().wait()

        @router.post("/later", job=JobOptions(delay=3600))
        async def later() -> int:
            return 1

        self.api = FastAPI(lifespan=self.jobs.lifespan())
        self.api.include_router(router)
        self.api.include_router(
            status_router(self.jobs, public=True, acts=True, words="asyncendpoints"), prefix="/jobs"
        )
        self.web: Served

    def worker(self) -> Worker:
        return self.jobs.worker()

    async def runs(self) -> None:
        """Have a worker run all that can run now."""
        await self.jobs.worker(burst=True).run(signals=False)

    async def submit(self, path: str) -> str:
        """The address of a new job."""
        answer = await self.web.client.post(path)
        assert answer.status_code == 202, answer.text
        self.seen.add(answer.json()["status"])
        return str(answer.headers["location"])

    async def get(self, place: str) -> Any:
        answer = await self.web.client.get(place)
        assert answer.status_code == 200, answer.text
        self.seen.add(answer.json()["status"])
        return answer.json()

    async def becomes(self, place: str, status: str) -> Any:
        """The job once it has this status."""
        tag = ""
        while True:
            answer = await self.web.client.get(f"{place}&wait=1", headers={"If-None-Match": tag} if tag else {})
            if answer.status_code == 200 and answer.json()["status"] == status:
                self.seen.add(status)
                return answer.json()
            tag = answer.headers["etag"]

    async def act(self, method: str, place: str, part: str = "") -> httpx2.Response:
        base, _, token = place.partition("?")
        return await self.web.client.request(method, f"{base}{part}?{token}")


@pytest.fixture(params=["sqlite", "postgres"])
async def page(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Page]:
    made = Page(url_of(request.param, tmp_path))
    async with serving(made.api) as web:
        made.web = web
        yield made


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# -- statuses


@pytest.mark.every_engine
async def test_every_status_of_the_table_is_shown(page: Page) -> None:
    running, later, failed = [await page.submit(path) for path in ("/succeed/1", "/later", "/overrun")]
    assert [(await page.get(one))["status"] for one in (running, later)] == ["Queued", "Scheduled"]
    async with page.worker():
        assert (await page.becomes(running, "InProgress"))["worker"] is not None
        await page.becomes(failed, "Failed")
        page.go.set()
        await page.becomes(running, "Completed")
    assert (await page.act("DELETE", later)).json()["status"] == "Canceled"
    assert (await page.get(later))["status"] == "Canceled"
    assert page.seen == SHOWN
    assert (await page.get(f"{later}&words=headrace"))["status"] == "cancelled", "who asks for others gets them"


async def test_queued_a_job_is_created_and_waits_for_processing(page: Page) -> None:
    job = await page.get(await page.submit("/succeed/1"))
    assert (job["status"], job["attempt"]) == ("Queued", 0)
    assert moment(job["created_at"]) == moment(job["updated_at"]) == START
    assert job["started_at"] is job["finished_at"] is job["result"] is job["error"] is None


async def test_in_progress_then_completed_with_a_result(page: Page) -> None:
    place = await page.submit("/succeed/21")
    async with page.worker():
        running = await page.becomes(place, "InProgress")
        assert (running["attempt"], running["finished_at"]) == (1, None)
        assert running["started_at"] is not None
        page.clock.advance(seconds=3)
        page.go.set()
        done = await page.becomes(place, "Completed")
    assert (done["result"], done["progress"]["percent"]) == (42, 100.0)
    assert (await page.act("GET", place, "/result")).json() == 42
    created, started, finished = (moment(done[f"{name}_at"]) for name in ("created", "started", "finished"))
    assert created <= started < finished == moment(done["updated_at"])
    assert finished - started >= timedelta(seconds=3)


async def test_scheduled_a_job_waits_for_its_time_and_becomes_queued(page: Page) -> None:
    place = await page.submit("/later")
    job = await page.get(place)
    assert job["status"] == "Scheduled"
    assert moment(job["available_at"]) - moment(job["created_at"]) == timedelta(hours=1)
    page.clock.advance(hours=1)
    assert (await page.get(place))["status"] == "Queued"
    async with page.worker():
        assert (await page.becomes(place, "Completed"))["result"] == 1


@pytest.mark.every_engine
async def test_failed_after_retries_that_wait_2_4_8_and_16_seconds(page: Page) -> None:
    place, waits = await page.submit("/fail"), list[float]()
    for retry in (1, 2, 3, 4):
        await page.runs()
        job = await page.get(place)
        assert (job["status"], job["attempt"], job["max_attempts"]) == ("Scheduled", retry, 5)
        assert (job["retry_count"], job["max_retries"], job["worker"]) == (retry, 4, None)
        assert job["error"] == {"code": "ValueError", "message": "as it was told"}
        waits.append((moment(job["available_at"]) - moment(job["updated_at"])).total_seconds())
        page.clock.advance(seconds=waits[-1])
    assert waits == [2.0, 4.0, 8.0, 16.0]
    await page.runs()
    job = await page.get(place)
    assert (job["status"], job["attempt"], job["reason"]) == ("Failed", 5, "retries_exhausted")
    assert moment(job["finished_at"]) - START >= timedelta(seconds=30)
    assert [one["outcome"] for one in job["attempts"]] == ["failed"] * 5
    assert all(START <= moment(one["started_at"]) <= moment(one["finished_at"]) for one in job["attempts"])
    answer = await page.act("GET", place, "/result")
    assert (answer.status_code, answer.json()["code"]) == (500, "ValueError")
    assert answer.json()["detail"] == "as it was told"


async def test_a_retry_that_succeeds_completes_the_job(page: Page) -> None:
    place = await page.submit("/fail")
    await page.runs()
    assert (await page.get(place))["status"] == "Scheduled"
    page.fails = False
    page.clock.advance(seconds=2)
    await page.runs()
    job = await page.get(place)
    assert (job["status"], job["attempt"]) == ("Completed", 2)


async def test_canceled_from_every_status_that_has_not_ended(page: Page) -> None:
    queued, scheduled = await page.submit("/succeed/1"), await page.submit("/later")
    for place in (queued, scheduled):
        answer = await page.act("DELETE", place)
        assert (answer.status_code, answer.json()["status"], answer.json()["reason"]) == (200, "Canceled", "user")
        assert answer.json()["finished_at"] is not None
    retrying, running = await page.submit("/fail"), await page.submit("/succeed/2")
    async with page.worker():
        await page.becomes(retrying, "Scheduled")
        assert (await page.act("DELETE", retrying)).json()["status"] == "Canceled"
        await page.becomes(running, "InProgress")
        answer = await page.act("DELETE", running)
        assert (answer.status_code, answer.json()["status"]) == (202, "InProgress")
        assert answer.json()["cancel_requested_at"] is not None
        assert (await page.becomes(running, "Canceled"))["reason"] == "user"
    assert (await page.act("GET", running, "/result")).status_code == 409


async def test_a_failed_job_is_queued_again_and_a_completed_one_put_away(page: Page) -> None:
    failed, completed = await page.submit("/overrun"), await page.submit("/later")
    page.clock.advance(hours=1)
    async with page.worker():
        await page.becomes(failed, "Failed")
        await page.becomes(completed, "Completed")
    answer = await page.act("POST", failed, "/retry")
    assert (answer.status_code, answer.json()["status"], answer.json()["finished_at"]) == (200, "Queued", None)
    answer = await page.act("POST", completed, "/discard")
    assert (answer.status_code, answer.json()["status"], answer.json()["reason"]) == (200, "Canceled", "discarded")


# -- transitions that are refused


async def test_rejected_transitions_are_conflicts_and_change_nothing(page: Page) -> None:
    places = {"Queued": await page.submit("/succeed/1"), "Canceled": await page.submit("/later")}
    await page.act("DELETE", places["Canceled"])
    failed, completed = await page.submit("/overrun"), await page.submit("/later")
    page.clock.advance(hours=1)
    async with page.jobs.worker(tasks=["overrun", "later"]):
        await page.becomes(failed, "Failed")
        await page.becomes(completed, "Completed")
    places |= {"Failed": failed, "Completed": completed}
    refused = {
        "Queued": [("POST", "/retry"), ("POST", "/discard")],
        "Completed": [("DELETE", ""), ("POST", "/retry")],
        "Failed": [("DELETE", "")],
        "Canceled": [("DELETE", ""), ("POST", "/discard")],
    }
    for status, asked in refused.items():
        before = await page.get(places[status])
        assert before["status"] == status
        for method, part in asked:
            answer = await page.act(method, places[status], part)
            assert (answer.status_code, answer.json()["code"]) == (409, "refused"), (status, part)
        assert await page.get(places[status]) == before


# -- time-outs


async def test_a_job_that_exceeds_its_timeout_fails_with_a_timeout_error(page: Page) -> None:
    place = await page.submit("/overrun")
    async with page.worker():
        job = await page.becomes(place, "Failed")
    assert (job["reason"], job["error"]["code"]) == ("timeout", "Timeout")
    answer = await page.act("GET", place, "/result")
    assert (answer.status_code, answer.json()["reason"]) == (504, "timeout")


@pytest.mark.every_engine
async def test_a_job_that_is_in_progress_for_thirty_minutes_is_stuck_and_fails(page: Page) -> None:
    place, session = await page.submit("/stuck"), page.jobs.session
    sweeper = Sweeper(session.engine, session.writer, page.jobs.host, page.jobs.host.new_id())
    async with page.worker():
        await page.becomes(place, "InProgress")
        page.clock.advance(minutes=29)
        await sweeper.sweep()
        assert (await page.get(place))["status"] == "InProgress"
        page.clock.advance(minutes=1)
        for _ in range(8):  # its worker has ten seconds to say so itself; else the sweeper does
            page.clock.advance(seconds=2)
            await sweeper.sweep()
        job = await page.becomes(place, "Failed")
    assert (job["reason"], job["attempt"], job["error"]["code"]) == ("timeout", 1, "Timeout")


# -- many processes


class Process:
    """A server process of the service, and a client of it."""

    def __init__(self, process: "subprocess.Popen[str]", client: httpx2.AsyncClient) -> None:
        self.process, self.client = process, client


def environment(folder: Path, **more: str) -> dict[str, str]:
    root = Path(__file__).parents[2]
    store = {"JOBS": f"sqlite:///{folder}/jobs.db?synchronous=normal", "HERE": str(folder)}
    return {**os.environ, **store, "PYTHONPATH": str(root), **more}


def started(folder: Path, port: int, worker: str) -> "subprocess.Popen[str]":
    service = "tests.coming_from.asyncendpoints_service:api"
    command = [sys.executable, "-m", "uvicorn", service, "--port", str(port), "--timeout-graceful-shutdown", "1"]
    return subprocess.Popen(command, env=environment(folder, WORKER=worker), stderr=subprocess.PIPE, text=True)


def worked(folder: Path) -> None:
    """A worker in a process of its own, until there is nothing more to do."""
    command = [sys.executable, "-m", "headrace", "worker", "tests.coming_from.asyncendpoints_service:jobs", "--burst"]
    ran = subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr


@asynccontextmanager
async def process(folder: Path, worker: str = "yes") -> AsyncIterator[Process]:
    port = free_port()
    made = started(folder, port, worker)
    try:
        address = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=address, timeout=120, trust_env=False) as client:

            async def answers() -> bool:
                assert made.poll() is None, made.stderr and made.stderr.read()
                try:
                    return (await client.get("/openapi.json")).status_code == 200
                except httpx2.ConnectError:
                    return False

            await until(answers, within=120)
            yield Process(made, client)
    finally:
        made.kill()
        made.wait()
        if made.stderr is not None:
            made.stderr.close()


def runs(folder: Path, n: int) -> dict[int, list[str]]:
    """Which processes ran a job, and which attempts."""
    return {int(one.suffix[1:]): one.read_text().split() for one in folder.glob(f"{n}.*")}


@pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system")
async def test_recovery_after_the_server_was_killed(tmp_path: Path) -> None:
    async with process(tmp_path) as first:
        answer = await first.client.post("/work/13")
        place = answer.headers["location"]
        await until(lambda: bool(runs(tmp_path, 13)))

        async def running() -> bool:
            return bool((await first.client.get(place)).json()["status"] == "running")

        await until(running)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        async with process(tmp_path) as second:
            base, _, token = place.partition("?")
            answer = await second.client.get(f"{base}/result?{token}&wait=60")
            while answer.status_code == 202:
                answer = await second.client.get(f"{base}/result?{token}&wait=60")
            done = {"n": 13, "pid": second.process.pid, "attempt": 2}
            assert (answer.status_code, answer.json()) == (200, done)
    assert runs(tmp_path, 13) == {first.process.pid: ["1"], second.process.pid: ["2"]}


async def test_a_job_is_claimed_by_one_of_many_workers(tmp_path: Path) -> None:
    async with process(tmp_path) as first, process(tmp_path) as second:
        count = 60
        clients = [first.client, second.client]
        answers = await asyncio.gather(*(clients[n % 2].post(f"/work/{100 + n}") for n in range(count)))
        ended = []
        for answer in answers:
            base, _, token = answer.headers["location"].partition("?")
            ended.append((await first.client.get(f"{base}/result?{token}&wait=60")).json())
    assert sorted(one["n"] for one in ended) == [100 + n for n in range(count)]
    pids = Counter(one["pid"] for one in ended)
    assert set(pids) <= {first.process.pid, second.process.pid}
    for one in ended:
        assert runs(tmp_path, one["n"]) == {one["pid"]: ["1"]}, "by one worker, once"


async def test_a_worker_process_runs_what_a_server_stored(tmp_path: Path) -> None:
    async with process(tmp_path, worker="no") as server:
        waiting = await server.client.post("/typed?text=ab", json=[1, 2])
        wrong = await server.client.post("/typed?text=ab", json=[])
        await asyncio.to_thread(worked, tmp_path)
        for answer, status, body in ((waiting, 200, 5), (wrong, 409, "no ids")):
            base, _, token = answer.headers["location"].partition("?")
            result = await server.client.get(f"{base}/result?{token}")
            assert result.status_code == status
            assert (result.json() if status == 200 else result.json()["detail"]) == body
