"""Leases and tokens at real hubs: any hub of the store believes them, for the key they were given to, and no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from headrace import App, Status
from headrace.runtime import signatures
from tests.hub.live.listening import connected
from tests.hub.remote_workers.working import CAN, said, submitted, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@asynccontextmanager
async def keyed(url: str, *names: str) -> AsyncIterator[tuple[Served, list[httpx2.AsyncClient]]]:
    """A hub, and a client for each of these keys."""
    async with App(url) as app:
        keys = [(await app.keys.create(name, ["work", "submit", "read"])).text for name in names]
        async with serving(app) as hub:
            clients = [
                httpx2.AsyncClient(base_url=hub.address, headers={"authorization": f"Bearer {key}"}, trust_env=False)
                for key in keys
            ]
            try:
                yield hub, clients
            finally:
                for client in clients:
                    await client.aclose()


async def kind(client: httpx2.AsyncClient, message: str, **fields: Any) -> str:
    """The last word of the problem that a message is answered with."""
    answer = await said(client, message, **fields)
    assert answer.status_code >= 400, answer.text
    return str(answer.json()["type"].rpartition("/")[2])


async def claimed(client: httpx2.AsyncClient) -> tuple[str, dict[str, Any]]:
    token = (await work(client, "register_worker", worker_id="w", capabilities=CAN, max_concurrent_jobs=5))["token"]
    await submitted(client)
    return token, await work(client, "claim_job", worker_id="w", token=token, wait=20)


async def test_a_worker_goes_on_behind_another_hub(url: str) -> None:
    async with serving(url) as one, serving(url) as other:
        token, job = await claimed(one.client)
        await work(one.client, "accept_job", lease=job["lease"])
        await work(other.client, "update_job_progress", lease=job["lease"], progress=10)
        heard = await work(other.client, "heartbeat", token=token, held=[job["job_id"]])
        assert (heard["lost"], heard["registered"]) == ([], True)
        done = await work(one.client, "complete_job", lease=job["lease"], result=1)
        assert await work(other.client, "complete_job", lease=job["lease"], result=1) == done, "from the record"
        assert await kind(other.client, "fail_job", lease=job["lease"], error="no") == "stale-job"
        await submitted(one.client)
        again = await work(other.client, "claim_job", worker_id="w", token=token, wait=20)
        assert again["type"] == "job_assigned"
        assert (await one.app.jobs.get(again["job_id"])).worker == (await one.app.workers.list())[0].info.id


async def test_over_a_socket_of_another_hub_it_needs_no_lease(url: str) -> None:
    async with serving(url) as one, serving(url) as other:
        token, job = await claimed(one.client)
        async with connected(other) as socket:
            heard = await socket.ask("register_worker", worker_id="w", capabilities=CAN, token=token)
            assert heard["worker"] == str((await one.app.workers.list())[0].info.id)
            assert (await socket.ask("complete_job", worker_id="w", job_id=job["job_id"]))["type"] == "job_completed"


async def test_a_lease_is_that_of_one_key(url: str) -> None:
    async with keyed(url, "mine", "theirs") as (_, [mine, theirs]):
        token, job = await claimed(mine)
        assert await kind(theirs, "accept_job", lease=job["lease"]) == "lease"
        assert await kind(theirs, "heartbeat", token=token) == "token"
        assert await kind(theirs, "claim_job", worker_id="w", token=token) == "token"
        await work(mine, "accept_job", lease=job["lease"])


async def test_a_lease_is_that_of_one_job_and_one_epoch(url: str) -> None:
    async with serving(url) as hub:
        token, job = await claimed(hub.client)
        await submitted(hub.client)
        other = await work(hub.client, "claim_job", worker_id="w", token=token, wait=20)
        assert await kind(hub.client, "accept_job", lease=job["lease"], job_id=other["job_id"]) == "lease"
        assert await kind(hub.client, "accept_job", lease=job["lease"][:-2]) == "lease"
        await work(hub.client, "release_job", lease=job["lease"])
        again = await work(hub.client, "claim_job", worker_id="w", token=token, wait=20)
        assert again["job_id"] == job["job_id"]
        assert again["lease"] != job["lease"]
        for message in ("accept_job", "start_job", "complete_job"):
            assert await kind(hub.client, message, lease=job["lease"]) == "stale-job", "replayed after its time"
        assert (await hub.app.jobs.get(job["job_id"])).status is Status.ASSIGNED


async def test_a_lease_is_void_with_its_key(url: str) -> None:
    async with keyed(url, "mine", "operator") as (hub, [mine, _]):
        _, job = await claimed(mine)
        await hub.app.keys.revoke("mine")
        await until(lambda: _refused(mine, job["lease"]))


async def test_a_claim_that_waits_ends_with_its_key(url: str) -> None:
    async with keyed(url, "mine", "operator") as (hub, [mine, operator]):
        claiming = asyncio.create_task(said(mine, "claim_job", worker_id="w", capabilities=CAN, wait=50))
        await until(lambda: any(worker.given for worker in hub.hub.fleet.workers.values()))
        await hub.app.keys.revoke("mine")
        async with asyncio.timeout(20):
            assert (await claiming).status_code == 401
        id = await submitted(operator)
        assert (await work(operator, "claim_job", worker_id="w", capabilities=CAN, wait=20))["job_id"] == id


async def _refused(client: httpx2.AsyncClient, lease: str) -> bool:
    return (await said(client, "start_job", lease=lease)).status_code == 401


async def test_after_a_rotation_both_secrets_count_on_every_hub(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "CACHE_SECONDS", 0.2)
    monkeypatch.setattr(signatures, "_REREAD_SECONDS", 0.0)
    async with serving(url) as one, serving(url) as other:
        token, job = await claimed(one.client)
        await work(other.client, "accept_job", lease=job["lease"])
        await one.app.keys.rotate_leases(by="ops")
        await work(other.client, "start_job", lease=job["lease"])
        await submitted(one.client)
        new = await work(one.client, "claim_job", worker_id="w", token=token, wait=20)
        await work(other.client, "accept_job", lease=new["lease"])
        await one.app.keys.rotate_leases(forget=True)

        async def void() -> bool:
            return all([await _lease_is_void(hub.client, new["lease"]) for hub in (one, other)])

        await until(void)
        assert await kind(one.client, "heartbeat", token=token) == "token"


async def _lease_is_void(client: httpx2.AsyncClient, lease: str) -> bool:
    answer = await said(client, "start_job", lease=lease)
    return bool(answer.status_code == 409 and answer.json()["type"].endswith("/lease"))


async def test_the_secret_is_shown_nowhere(tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        await claimed(hub.client)
        await hub.app.keys.rotate_leases(by="ops")
        [setting] = await hub.app.session.engine.documents.settings(signatures.SETTING)
        secrets = [one["data"] for one in json.loads(setting.value)["secrets"]]
        paths = ("/api/queues", "/api/limits", "/api/rates", "/api/tasks", "/api/stats", "/api/workers", "/metrics")
        shown = [(await hub.client.get(path)).text for path in paths]
        shown.append(str([one.to_dict() for one in await hub.app.store.audit()]))
        shown.append(str(hub.hub.fleet.signing._secrets))
        assert "rotate" in shown[-2]
        assert not [text for text in shown for secret in secrets if secret in text]


# -- without a lease


async def test_after_a_reconnect_job_and_worker_name_a_job_that_is_held(url: str) -> None:
    async with serving(url) as hub:
        async with connected(hub) as socket:
            await socket.ask("register_worker", worker_id="w", capabilities=CAN)
            id = await submitted(hub.client)
            given = await socket.ask("claim_job", worker_id="w", wait=20)
            assert given["job_id"] == id
        me = {"worker_id": "w", "job_id": id}
        async with connected(hub) as again:
            await again.ask("register_worker", worker_id="w", capabilities=CAN)
            assert (await again.ask("update_job_progress", **me, progress=10))["type"] == "progress_acknowledged"
            other = await again.ask("update_job_progress", worker_id="x", job_id=id, progress=11)
            assert other["type"] == "stale_job", "that name has no job"
            nameless = await again.ask("update_job_progress", job_id=id, progress=11)
            assert nameless["type"] == "stale_job", "at this socket no worker has it"
        assert (await work(hub.client, "update_job_progress", **me, progress=20))["type"] == "progress_acknowledged"
        for _ in range(2):  # the answer may have been lost
            assert (await work(hub.client, "complete_job", **me, result=1))["type"] == "job_completed"
        assert (await hub.app.jobs.get(id)).status is Status.COMPLETED
        assert (await said(hub.client, "complete_job", job_id=id)).status_code == 400
        assert (await said(hub.client, "complete_job", worker_id="w")).status_code == 400


async def test_only_the_key_that_registered_the_worker_may_name_it(tmp_path: Path) -> None:
    app = App(url_of("sqlite", tmp_path))
    async with app:
        keys = {name: (await app.keys.create(name, ["work", "submit"])).text for name in ("one", "two")}
    async with serving(app) as hub:
        one, two = ({"authorization": f"Bearer {keys[name]}"} for name in ("one", "two"))
        body = {"type": "image", "requirements": {"service_type": "comfyui"}}
        id = (await hub.client.post("/api/jobs", json=body, headers=one)).json()["job_id"]
        claim = {"worker_id": "w", "capabilities": CAN, "wait": 20}
        assert (await hub.client.post("/api/work/claim_job", json=claim, headers=one)).json()["job_id"] == id
        done = {"worker_id": "w", "job_id": id, "result": None}
        refused = await hub.client.post("/api/work/complete_job", json=done, headers=two)
        assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (409, "stale-job")
        assert (await hub.client.post("/api/work/complete_job", json=done, headers=one)).status_code == 200


async def test_a_job_that_another_of_that_name_had_needs_its_lease(tmp_path: Path) -> None:
    """A late message of the one before could be about its own attempt."""
    async with serving(url_of("sqlite", tmp_path)) as hub:
        claim = {"worker_id": "w", "capabilities": CAN, "wait": 20}
        id = await submitted(hub.client, retry_delays=[0, 0], max_retries=2)
        first = await work(hub.client, "claim_job", **claim)
        await work(hub.client, "fail_job", lease=first["lease"], error="no")
        second = await work(hub.client, "claim_job", **claim)
        assert (first["job_id"], second["job_id"]) == (id, id)
        done = {"worker_id": "w", "job_id": id, "result": None}
        assert (await said(hub.client, "complete_job", **done)).status_code == 409, "two registrations had it"
        before = {worker.id for worker in hub.hub.fleet.workers.values() if not worker.held}
        for gone in before:
            del hub.hub.fleet.workers[gone]  # as after a restart of the hub
        assert (await said(hub.client, "complete_job", **done)).status_code == 409, "the history knows both"
        assert (await work(hub.client, "complete_job", **done, lease=second["lease"]))["type"] == "job_completed"


async def test_a_job_whose_offer_was_lost_needs_its_lease(tmp_path: Path) -> None:
    """Such an offer leaves no attempt: whose it was is not on record."""
    async with serving(url_of("sqlite", tmp_path)) as hub:
        id = await submitted(hub.client)
        given = await work(hub.client, "claim_job", worker_id="w", capabilities=CAN, wait=20)
        [held] = [held for worker in hub.hub.fleet.workers.values() for held in worker.held.values()]
        held.job = replace(held.job, unstarted_losses=1)
        done = {"worker_id": "w", "job_id": id, "result": None}
        assert (await said(hub.client, "complete_job", **done)).status_code == 409
        assert (await work(hub.client, "complete_job", **done, lease=given["lease"]))["type"] == "job_completed"
