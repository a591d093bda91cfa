"""A worker that speaks the protocol: over a socket by its identity, over HTTP by token and lease."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import Status
from tests.hub.live.listening import connected
from tests.hub.remote_workers.working import CAN, said, submitted, work
from tests.hub.serving import serving
from tests.support.apps import url_of


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


async def test_a_job_runs_over_a_socket_in_the_words_of_the_page(url: str) -> None:
    async with serving(url) as hub, connected(hub) as socket:
        id = await submitted(hub.client)
        me: dict[str, Any] = {"worker_id": "worker-gpu-01"}
        given = await socket.ask("claim_job", **me, capabilities=CAN, max_concurrent_jobs=2, current_load=0.3)
        assert (given["type"], given["job_id"], given["job_type"]) == ("job_assigned", id, "text_to_image")
        assert given["claim_timeout"] == 30000
        assert given["requirements"]["service_type"] == "comfyui"
        assert given["requirements"]["timeout_minutes"] == 15
        assert (await hub.app.jobs.get(id)).status is Status.ASSIGNED
        assert (await socket.ask("accept_job", **me, job_id=id))["type"] == "job_accepted"
        assert (await hub.app.jobs.get(id)).status is Status.ACCEPTED
        heard = await socket.ask(
            "update_job_progress", **me, job_id=id, status="in_progress", progress=45, message="14/30"
        )
        assert heard == {"type": "progress_acknowledged", "id": "asked", "job_id": id, "cancel": False, "reason": None}
        job = await hub.app.jobs.get(id)
        assert (job.status, job.progress and job.progress.percent) == (Status.RUNNING, 45)
        result = {"success": True, "output_files": ["image.png"]}
        done = {**me, "job_id": id, "status": "completed", "processing_time": 67.5, "result": result}
        assert (await socket.ask("complete_job", **done))["type"] == "job_completed"
        assert (await hub.app.jobs.get(id)).result == result
        [attempt] = (await hub.app.jobs.history(id)).attempts
        assert attempt.processing_time == 67.5
        assert (await socket.ask("complete_job", **done))["type"] == "job_completed", "a repeat is answered alike"
        assert (await socket.ask("fail_job", **me, job_id=id, error="no"))["type"] == "stale_job"


async def test_a_job_runs_over_http(url: str) -> None:
    async with serving(url) as hub:
        token = (await work(hub.client, "register_worker", worker_id="curl", capabilities=CAN))["token"]
        assert (await work(hub.client, "claim_job", worker_id="curl", token=token))["type"] == "no_job"
        id = await submitted(hub.client, retry_delays=[5, 15, 30], max_retries=3)
        given = await work(hub.client, "claim_job", worker_id="curl", token=token, wait=20)
        assert given["job_id"] == id
        lease = given["lease"]
        assert (await work(hub.client, "claim_job", worker_id="curl", token=token))["type"] == "no_job", "it is full"
        assert (await work(hub.client, "accept_job", lease=lease))["type"] == "job_accepted"
        assert (await work(hub.client, "start_job", lease=lease))["attempt"] == 1
        heard = await work(hub.client, "heartbeat", token=token, held=[id])
        assert (heard["cancel"], heard["lost"], heard["registered"]) == ([], [], True)
        details = {"error_type": "ServiceTimeoutError", "connector": "comfyui"}
        failed = await work(hub.client, "fail_job", lease=lease, error="timeout", retry=True, error_details=details)
        assert failed["status"] == "retrying"
        assert failed == await work(
            hub.client, "fail_job", lease=lease, error="timeout", retry=True, error_details=details
        )
        job = await hub.app.jobs.get(id)
        assert job.error is not None
        assert (job.error.type, job.error.details) == ("ServiceTimeoutError", details)
        late = await hub.client.post("/api/work/complete_job", json={"lease": lease, "result": 1})
        assert (late.status_code, late.json()["type"].rpartition("/")[2]) == (409, "stale-job")


@pytest.mark.parametrize(
    "fields", [{"worker_id": "a\0b"}, {"tasks": ["resize", "a\0b"]}, {"queues": ["a\0b"]}, {"queues": ["a\nb"]}]
)
@pytest.mark.parametrize("message", ["register_worker", "claim_job"])
async def test_names_that_nothing_can_have_are_refused(url: str, message: str, fields: dict[str, Any]) -> None:
    async with serving(url) as hub:
        answer = await said(hub.client, message, **{"worker_id": "curl", "capabilities": CAN} | fields)
        assert (answer.status_code, "printable" in answer.json()["detail"]) == (400, True), answer.text
        assert not await hub.app.workers.list()
