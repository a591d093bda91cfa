"""A worker behind a balancer: each of its messages goes to another hub."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.hub.remote_workers.working import work
from tests.hub.serving import serving
from tests.support.apps import url_of

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_its_jobs_follow_one_another_without_a_pause(engine: str, tmp_path: Path) -> None:
    url = url_of(engine, tmp_path)
    async with serving(url) as one, serving(url) as other:
        turn = cycle([one.client, other.client])

        async def say(message: str, **fields: Any) -> dict[str, Any]:
            return await work(next(turn), message, **fields)

        for _ in range(6):
            assert (await one.client.post("/api/jobs", json={"task": "work", "payload": {}})).is_success
        me = {"worker_id": "roams"}
        me["token"] = (await say("register_worker", **me, tasks=["work"]))["token"]
        for number in range(6):
            job = await say("claim_job", **me)  # which is answered at once, with a job or without
            assert job["type"] == "job_assigned", "what it has completed elsewhere does not keep a slot"
            if number > 2:
                await say("accept_job", lease=job["lease"])
                assert not (await say("update_job_progress", lease=job["lease"], progress=50))["cancel"]
                beat = await say("heartbeat", token=me["token"], held=[job["job_id"]])
                assert (beat["cancel"], beat["lost"], beat["registered"]) == ([], [], True)
            await say("complete_job", lease=job["lease"], result=number)
            if number > 4:
                again = await say("complete_job", lease=job["lease"], result=number)
                assert again["type"] == "job_completed", "the other hub answers as this one has"
        assert (await say("claim_job", **me))["type"] == "no_job"
        jobs = (await one.client.get("/api/jobs")).json()["items"]
        assert sorted(job["result"] for job in jobs) == [0, 1, 2, 3, 4, 5]
        assert {job["attempt"] for job in jobs} == {1}
