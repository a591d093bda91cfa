"""What workers send to a hub is bounded by bytes while the store does not take it: they keep it, and send it again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.core.status import Status
from tests.hub.remote_workers.working import said, work
from tests.hub.serving import serving
from tests.runtime.writes.test_load import MIB, Gate
from tests.support.apps import ENGINES, url_of
from tests.support.faults import Instead
from tests.support.until import until

TEXT = "x" * (MIB // 2)
MESSAGES: dict[str, dict[str, Any]] = {
    "complete_job": {"result": TEXT},
    "fail_job": {"error": TEXT, "retry": False},
    "job_items": {"first": 1, "items": [TEXT]},
    "job_log": {"first": 1, "lines": [{"message": TEXT}]},
    "job_step": {"name": "one", "result": TEXT},
}


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("kind", ENGINES)
async def test_what_waits_at_a_hub_is_bounded_by_bytes(
    kind: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_UNWRITTEN", "2MiB")
    count, app = 10, App(url_of(kind, tmp_path))
    async with app, serving(app) as hub:
        given = await work(hub.client, "register_worker", worker_id="far", tasks=["make"], max_concurrent_jobs=count)
        for _ in range(count):
            assert (await hub.client.post("/api/jobs", json={"task": "make", "payload": {}})).status_code == 201
        leases = list[str]()
        for _ in range(count):
            job = await work(hub.client, "claim_job", worker_id="far", token=given["token"], wait=20)
            await work(hub.client, "start_job", lease=job["lease"])
            leases.append(job["lease"])
        writer = app.session.writer
        real = writer.engine
        apply, append, tail = (Gate(one) for one in (real.jobs.apply, real.entries.append, real.entries.tail))
        entries = Instead(real.entries, append=append, tail=tail)
        writer.engine = Instead(real, jobs=Instead(real.jobs, apply=apply), entries=entries)

        def send(lease: str) -> asyncio.Task[Any]:
            return asyncio.create_task(said(hub.client, message, lease=lease, **MESSAGES[message]))

        sent = [send(lease) for lease in leases]
        try:
            await until(lambda: sum(one.done() for one in sent) >= count - 4)  # the others wait for the store
            refused = [one.result() for one in sent if one.done()]
            assert {one.status_code for one in refused} == {503}
            assert {one.json()["type"].rpartition("/")[2] for one in refused} == {"overloaded"}
            assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
            assert 2 * MIB <= writer.load.bytes < 5 * MIB  # each is there as it came, and as it is to be written
        finally:
            for gate in (apply, append, tail):
                gate.open.set()
        for lease, one in zip(leases, sent, strict=True):
            if (await one).status_code == 503:
                await until(lambda: not writer.load.full)
                assert (await send(lease)).status_code == 200
            else:
                assert one.result().status_code == 200
        assert writer.load.bytes == 0
        if message == "complete_job":
            assert await app.jobs.count(status=Status.COMPLETED) == count
