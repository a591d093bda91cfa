"""Hubs on one store, each a process of its own: what happens at one is heard at the other, and any may die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import httpx2
import pytest

from tests.hub.process import Running, started
from tests.hub.remote_workers.working import work
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import url_of
from tests.support.until import until

pytestmark = [
    pytest.mark.every_engine,
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(120),
]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path}/jobs.db"


def client(hub: Running) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=hub.address, trust_env=False, timeout=30)


JOB = {"task": "work", "payload": {"n": 1}}


async def test_an_event_at_one_reaches_a_subscriber_of_the_other(url: str, tmp_path: Path) -> None:
    with started(tmp_path, "hub", "--url", url) as one, started(tmp_path, "hub", "--url", url) as other:
        async with client(one) as here, client(other) as there:
            id = (await here.post("/api/jobs", json=JOB)).json()["job_id"]
            async with here.stream("GET", f"/api/jobs/{id}/events") as events:
                told = statuses(events)
                assert await anext(told) == "queued"
                assert (await there.post(f"/api/jobs/{id}/cancel", json={})).status_code == 200
                assert await anext(told) == "cancelled"


async def statuses(events: httpx2.Response) -> AsyncIterator[str]:
    """How the job stands, whenever that is told."""
    name = ""
    async for line in events.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: ") and name in ("snapshot", "status"):
            said: dict[str, Any] = json.loads(line.removeprefix("data: "))
            yield (said["job"] if name == "snapshot" else said)["status"]


@pytest.mark.parametrize("when", ["at once", "when it is stored"])
async def test_a_request_to_a_hub_that_is_killed_may_be_repeated(when: str, url: str, tmp_path: Path) -> None:
    with started(tmp_path, "hub", "--url", url) as one, started(tmp_path, "hub", "--url", url) as other:
        async with client(other) as there:
            _, writer = await asyncio.open_connection("127.0.0.1", int(one.address.rpartition(":")[2]))
            writer.write(request())
            await writer.drain()
            if when == "when it is stored":  # and its answer, if any, has been read by nobody
                await until(lambda: count(there))
            os.kill(one.process.pid, signal.SIGKILL)
            one.process.wait(30)
            writer.transport.abort()
            headers = {"Idempotency-Key": "order-7"}
            answers = [await there.post("/api/jobs", json=JOB, headers=headers) for _ in range(3)]
            assert len({answer.json()["job_id"] for answer in answers}) == 1
            assert [answer.status_code for answer in answers[1:]] == [200, 200]
            if when == "when it is stored":
                assert answers[0].status_code == 200
            assert await count(there) == 1


async def test_a_claim_at_both_at_once_is_one_claim(url: str, tmp_path: Path) -> None:
    with started(tmp_path, "hub", "--url", url) as one, started(tmp_path, "hub", "--url", url) as other:
        async with client(one) as here, client(other) as there:
            me: dict[str, Any] = {"worker_id": "one"}
            known = await work(here, "register_worker", **me, tasks=["work"], max_concurrent_jobs=1)
            me["token"] = known["token"]
            for _ in range(30):
                assert (await here.post("/api/jobs", json=JOB)).is_success
            for turn in range(12):
                said = me | {"request": f"turn {turn}"}
                async with all_at_once(url, known["worker"]):
                    claims = [asyncio.create_task(work(hub, "claim_job", **said)) for hub in (here, there)]
                answers = await asyncio.gather(*claims)
                assert {answer["type"] for answer in answers} == {"job_assigned"}
                assert len({answer["job_id"] for answer in answers}) == 1
                jobs = (await here.get("/api/jobs", params={"worker": known["worker"]})).json()["items"]
                assert [job["id"] for job in jobs] == [answers[0]["job_id"]]
                await work(there, "start_job", lease=answers[0]["lease"])
                again = await work(here, "claim_job", **said)
                assert again["type"] == "no_job", "what it was given is started"
                await work(here, "complete_job", lease=answers[0]["lease"])


@asynccontextmanager
async def all_at_once(url: str, worker: str) -> AsyncIterator[None]:
    """Claims that begin meanwhile get past the row of the worker together, at the end: on PostgreSQL, where nothing
    else keeps them apart."""
    if not url.startswith("postgres"):
        yield
        return
    schema = parse_qs(urlsplit(url).query)["schema"][0]
    connection = await asyncpg.connect(shared().url())
    try:
        async with connection.transaction():
            await connection.execute(f'SELECT 1 FROM "{schema}".workers WHERE id = $1 FOR UPDATE', worker)
            yield
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FOR KEY SHARE%' "
                f"AND {connection.get_server_pid()} = ANY (pg_blocking_pids(pid))"
            )
            await until(lambda: shared().execute(waiting) == [(2,)])
    finally:
        await connection.close()


def request() -> bytes:
    body = json.dumps(JOB).encode()
    head = "POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: order-7\r\nContent-Type: application/json"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def count(there: httpx2.AsyncClient) -> int:
    return int((await there.get("/api/jobs/count", params={"task": "work"})).json()["count"])
