"""What a client is told of a task that no worker has described: workers behind a hub run tasks, and describe none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.remote_workers.working import CAN, PAGE_JOB, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        yield hub


async def warned(hub: Served, job: dict[str, Any]) -> bool:
    answer = await hub.client.post("/api/jobs", json=job)
    assert answer.status_code == 201, answer.text
    return any("no worker has registered" in text for text in answer.json()["warnings"])


@pytest.mark.parametrize(
    ("job", "says"),
    [({"task": "shout", "payload": {}}, {"tasks": ["shout"]}), (PAGE_JOB, {"capabilities": CAN})],
    ids=["of a task that one names", "of a service that one offers"],
)
async def test_a_job_is_warned_of_until_a_worker_runs_it(
    job: dict[str, Any], says: dict[str, Any], hub: Served
) -> None:
    assert await warned(hub, job)
    await work(hub.client, "register_worker", worker_id="one", **says)
    assert not await warned(hub, job)
    assert not await warned(hub, job)
    assert await warned(hub, {"task": "whisper", "payload": {}})


async def test_a_task_that_only_a_remote_worker_has_is_listed_and_no_alert(hub: Served) -> None:
    await work(hub.client, "register_worker", worker_id="one", tasks=["shout"])
    assert not await warned(hub, {"task": "shout", "payload": {}})
    assert [one["name"] for one in (await hub.client.get("/api/tasks")).json()["items"]] == ["shout"]
    assert (await hub.client.get("/api/tasks/shout")).status_code == 200
    assert (await hub.client.get("/api/alerts")).json()["items"] == []
    assert await warned(hub, {"task": "whisper", "payload": {}})
    [alert] = (await hub.client.get("/api/alerts")).json()["items"]
    assert (alert["kind"], alert["level"], alert["subject"]) == ("unserved_task", "fail", "whisper")
