"""Workers in any language that are drained: given no more, and left with what they have."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from headrace import Status
from headrace.hub import HubOptions
from tests.hub.remote_workers.working import CAN, submitted, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until

QUIET = HubOptions(maintenance=False, webhooks=False)


async def is_shown_as_draining(hub: Served, worker: str) -> bool:
    return any(row.info.id == UUID(worker) and row.beat.state == "draining" for row in await hub.app.workers.list())


async def test_who_is_drained_ends_what_it_has_and_is_given_no_more_at_any_hub(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    async with serving(url, QUIET) as hub, serving(url, QUIET) as other:
        me = await work(hub.client, "register_worker", worker_id="w", capabilities=CAN, max_concurrent_jobs=3)
        said = {"worker_id": "w", "token": me["token"]}
        first = await submitted(hub.client)
        given = await work(hub.client, "claim_job", **said, wait=20)
        assert given["job_id"] == first
        waits = asyncio.create_task(work(hub.client, "claim_job", **said, wait=50))
        await until(lambda: hub.hub.fleet.claims.waits(hub.hub.fleet.workers[UUID(me["worker"])]))

        assert (await hub.client.post(f"/api/workers/{me['worker']}/drain")).status_code == 202
        assert (await asyncio.wait_for(waits, 20))["type"] == "no_job"
        second = await submitted(hub.client)
        for either in (hub, other):
            assert (await work(either.client, "claim_job", **said))["type"] == "no_job"
        assert (await work(hub.client, "complete_job", lease=given["lease"]))["status"] == "completed"
        assert (await work(hub.client, "heartbeat", token=me["token"]))["registered"]
        await until(lambda: is_shown_as_draining(hub, me["worker"]))

        assert (await hub.app.jobs.get(second)).status is Status.QUEUED
        anybody = await work(hub.client, "claim_job", worker_id="new", capabilities=CAN, wait=20)
        assert anybody["job_id"] == second


async def test_a_wish_of_which_no_hint_came_is_found_by_a_beat(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    async with serving(url, QUIET) as hub:
        me = await work(hub.client, "register_worker", worker_id="w", capabilities=CAN)
        fleet = hub.hub.fleet
        fleet.leaving.hinted = lambda hint: False  # type: ignore[method-assign]
        await hub.app.workers.drain(UUID(me["worker"]))

        async def known() -> bool:
            await work(hub.client, "heartbeat", token=me["token"])
            return fleet.workers[UUID(me["worker"])].leaving

        await until(known)
        await submitted(hub.client)
        answer = await work(hub.client, "claim_job", worker_id="w", token=me["token"])
        assert answer["type"] == "no_job"
