"""Claims that are sent again because their answers were lost, and those that are not repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hub.serving import serving
from tests.hub.work.working import work
from tests.support.apps import url_of


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_full_worker_is_given_again_what_it_has_and_nothing_else(slots: int, tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        for _ in range(4):
            assert (await hub.client.post("/api/jobs", json={"task": "work", "payload": {}})).is_success
        me: dict[str, Any] = {"worker_id": "one"}
        known = await work(hub.client, "register_worker", **me, tasks=["work"], max_concurrent_jobs=slots)
        me["token"] = known["token"]

        async def claimed(request: str) -> dict[str, Any]:
            return await work(hub.client, "claim_job", **me, request=request)

        given = {request: (await claimed(request))["job_id"] for request in ("first", "second")[:slots]}
        assert len(set(given.values())) == slots
        assert (await claimed("third"))["type"] == "no_job"
        for request, job in given.items():
            again = await claimed(request)
            assert again["job_id"] == job
        await work(hub.client, "start_job", lease=again["lease"])
        assert (await claimed(request))["type"] == "no_job", "its answer has arrived"
        await work(hub.client, "complete_job", lease=again["lease"])
        assert (await claimed("third"))["job_id"] not in given.values()
