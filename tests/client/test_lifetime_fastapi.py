"""headrace in a FastAPI service: a real server, asked over HTTP, and told to stop."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import App, Job, Status
from tests.support.servers.daemons import free_port

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

SERVICE = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from headrace import App, Context, Job, Retry
from headrace.app import Check, QueueInfo, Stats, TaskInfo
from headrace.core.explain.job import Explanation
from headrace.core.job import History, Progress
from headrace.core.query import Page
from headrace.engine import WorkerRow

jobs = App("sqlite:///jobs.db?synchronous=normal")

@jobs.task
async def resize(ctx: Context, image: str, width: int = 800) -> dict[str, int]:
    ctx.progress(50, "halfway")
    return {image: width}

@jobs.task
async def slow() -> None:
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)

web = FastAPI(lifespan=jobs.lifespan(worker=True, concurrency=2, grace=float(sys.argv[2])))

@web.post("/resize")
async def submit(image: str):
    handle = await resize.submit(image)
    await handle.result()
    await handle.refresh()
    return handle.last

@web.post("/slow")
async def begin() -> Job:
    return (await slow.submit()).last

@web.get("/plain/{id}")
async def plain(id: UUID):
    return await jobs.jobs.get(id)

@web.get("/typed/{id}")
async def typed(id: UUID) -> Job:
    return await jobs.jobs.get(id)

@web.get("/model/{id}", response_model=Job | None)
async def model(id: UUID):
    return await jobs.jobs.get(id)

class Answer(BaseModel):
    job: Job
    progress: Progress | None

@web.get("/nested/{id}")
async def nested(id: UUID) -> Answer:
    job = await jobs.jobs.get(id)
    return Answer(job=job, progress=job.progress)

@web.get("/progress/{id}")
async def progress(id: UUID):
    return (await jobs.jobs.get(id)).progress

@web.get("/progress-typed/{id}")
async def progress_typed(id: UUID) -> Progress | None:
    return (await jobs.jobs.get(id)).progress

@web.get("/page")
async def page():
    return await jobs.jobs.list()

@web.get("/page-typed")
async def page_typed() -> Page[Job]:
    return await jobs.jobs.list()

@web.get("/list")
async def all_jobs():
    return list((await jobs.jobs.list()).items)

@web.get("/list-typed")
async def all_jobs_typed() -> list[Job]:
    return list((await jobs.jobs.list()).items)

@web.get("/history/{id}")
async def history(id: UUID) -> History:
    return await jobs.jobs.history(id)

@web.get("/explain/{id}")
async def explain(id: UUID) -> Explanation:
    return await jobs.jobs.explain(id)

@web.get("/stats")
async def stats() -> Stats:
    return await jobs.stats.counts()

@web.get("/everything")
async def everything():
    return {
        "stats": await jobs.stats.counts(), "queues": await jobs.queues.list(), "workers": await jobs.workers.list(),
        "tasks": await jobs.tasks.list(), "checks": await jobs.store.doctor(), "batches": await jobs.batches.list(),
    }

@web.get("/workers")
async def workers() -> list[WorkerRow]:
    return await jobs.workers.list()

@web.get("/others")
async def others() -> tuple[list[QueueInfo], list[TaskInfo], list[Check]]:
    return await jobs.queues.list(), await jobs.tasks.list(), await jobs.store.doctor()

uvicorn.run(web, port=int(sys.argv[1]), log_level="warning")
"""


class Service:
    """A running one, and a way to ask it."""

    def __init__(self, place: Path, port: int, process: subprocess.Popen[str]) -> None:
        self.place, self.port, self.process = place, port, process

    def ask(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        try:
            return bool(self.ask("/openapi.json"))
        except urllib.error.HTTPError:
            raise
        except OSError:
            return False


@contextmanager
def service(place: Path, grace: float = 15.0) -> Iterator[Service]:
    port = free_port()
    command = [sys.executable, "-c", SERVICE, str(port), str(grace)]
    with subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True) as process:
        try:
            made = Service(place, port, process)
            deadline = time.monotonic() + 120
            while not made.answers():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield made
        finally:
            process.kill()


def stored(place: Path, id: str) -> Job:
    app = App(f"sqlite:///{place / 'jobs.db'}?synchronous=normal")

    async def get() -> Job:
        async with app:
            return await app.jobs.get(UUID(id))

    return asyncio.run(get())


def test_records_are_answers(tmp_path: Path) -> None:
    with service(tmp_path) as web:
        job = web.ask("/resize?image=cat.png", "POST")
        assert job == stored(tmp_path, job["id"]).to_dict()
        assert (job["status"], job["result"]) == ("completed", {"cat.png": 800})
        for way in ("plain", "typed", "model"):
            assert web.ask(f"/{way}/{job['id']}") == job
        progress = job["progress"]
        assert progress["percent"] == 100.0
        assert web.ask(f"/nested/{job['id']}") == {"job": job, "progress": progress}
        assert web.ask(f"/progress/{job['id']}") == web.ask(f"/progress-typed/{job['id']}") == progress
        assert web.ask("/page") == web.ask("/page-typed") == {"items": [job], "cursor": None}
        assert web.ask("/list") == web.ask("/list-typed") == [job]
        assert web.ask(f"/history/{job['id']}")["attempts"][0]["outcome"] == "completed"
        assert "completed" in web.ask(f"/explain/{job['id']}")
        assert web.ask("/stats")["statuses"] == {"completed": 1}
        (worker,) = web.ask("/workers")
        assert worker["info"]["concurrency"] == 2
        everything, (queues, tasks, checks) = web.ask("/everything"), web.ask("/others")
        assert everything["queues"] == queues
        assert [task["name"] for task in everything["tasks"]] == [task["name"] for task in tasks] == ["resize", "slow"]
        assert {check["level"] for check in checks} <= {"ok", "warn"}
        assert everything["batches"] == {"items": [], "cursor": None}


def test_the_schema_of_the_service_names_the_fields(tmp_path: Path) -> None:
    with service(tmp_path) as web:
        openapi = web.ask("/openapi.json")

        def schema(path: str) -> Any:
            return openapi["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]

        job = schema("/typed/{id}")
        assert job["description"] == "One durable submission of a task, as stored."
        assert "queued" in job["properties"]["status"]["enum"]
        assert schema("/page-typed")["properties"]["items"]["items"]["properties"] == job["properties"]
        assert schema("/list-typed")["items"]["properties"] == job["properties"]


@pytest.mark.parametrize(("finishes", "status"), [(True, Status.COMPLETED), (False, Status.QUEUED)])
def test_a_service_that_is_told_to_stop_gives_its_jobs_their_grace(
    tmp_path: Path, finishes: bool, status: Status
) -> None:
    with service(tmp_path, grace=3600 if finishes else 0.05) as web:
        id = web.ask("/slow", "POST")["id"]
        deadline = time.monotonic() + 60
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        web.process.send_signal(signal.SIGTERM)
        if finishes:
            (tmp_path / "go").touch()
        web.process.communicate(timeout=60)
    job = stored(tmp_path, id)
    assert (job.status, job.charged) == (status, int(finishes))
