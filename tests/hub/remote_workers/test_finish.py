"""What a remote worker says of how long it took is what the metrics count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.core.status import Reason, Status
from headrace.hub.remote_workers.finish import _failed, _released
from tests.cli.records import job
from tests.hub.api.world import world
from tests.hub.remote_workers.working import work
from tests.support.until import until


async def test_a_worker_says_itself_how_long_it_took(tmp_path: Path) -> None:
    """Three jobs: one takes 67.5 s, one fails for good after 120 s, one fails at first, and takes 2.5 s then."""
    async with world(tmp_path) as hub:
        app = hub.app
        for image, retries in (("a", 0), ("b", 0), ("c", 1)):
            retry = {"max_retries": retries, "initial": 0.001}
            submit = {"task": "resize", "payload": {"image": image}, "retry": retry, "queue": "q"}
            assert (await hub.client.post("/api/jobs", json=submit)).status_code == 201
        token = (await work(hub.client, "register_worker", worker_id="w", tasks=["resize"]))["token"]
        for message, seconds in (("complete_job", 67.5), ("fail_job", 120.0), ("fail_job", 1.0), ("complete_job", 2.5)):
            given = await work(hub.client, "claim_job", worker_id="w", token=token, queues=["q"], wait=20)
            said: dict[str, Any] = {"result": {}} if message == "complete_job" else {"error": "no"}
            await work(hub.client, message, lease=given["lease"], processing_time=seconds, **said)

        async def known() -> bool:
            await work(hub.client, "heartbeat", worker_id="w", token=token)
            return (await app.stats.metrics()).windows["5m"].jobs == 3

        await until(known)
        found = (await app.stats.metrics()).windows["5m"]
        assert found.average_processing_time == 35.0
        assert (found.success_rate, found.retry_rate) == (0.666667, 0.333333)
        assert found.average_queue_time is not None
        assert 0 <= found.average_queue_time < 30
        assert found.worker_utilisation is not None
        [series] = (await app.stats.charts()).series
        assert series.total.running is not None
        assert (series.total.running.count, series.total.running.mean) == (4, 191 / 4)


def test_a_failure_says_its_reason() -> None:
    timed_out = job(status=Status.FAILED, reason=Reason.TIMEOUT)
    assert _failed(timed_out, None).reason is Reason.TIMEOUT
    assert _failed(job(status=Status.QUEUED), None).reason is None, "it was retried by hand since"
    assert _released(job(status=Status.CANCELLED, reason=Reason.USER), None).reason is Reason.USER
