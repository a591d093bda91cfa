"""A secret is taken up while hubs and web applications run: one after another is started again with it."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import uuid4

import pytest

from headrace import App
from headrace.core.auth.tokens import JobLease
from headrace.endpoints.tokens import Tokens
from headrace.errors import SecretMismatch
from headrace.hub import HubOptions
from headrace.maintenance.pruner import Pruner
from headrace.runtime.secrets import SECRET_GRACE
from headrace.testing.clock import FakeClock
from tests.hub.remote_workers.working import said, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of

pytestmark = pytest.mark.every_engine

QUIET = HubOptions(maintenance=False, webhooks=False)
SECRET, OTHER = "a secret of this test, and of no other", "another secret that is no less long"
DAY = SECRET_GRACE.total_seconds()


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


def _later(served: Served) -> None:
    """Ten seconds: it reads the secrets again, and asks the store again how it is."""
    served.hub.fleet.signing._read_at = served.hub.vitals._answered_at = float("-inf")


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING and "SECRET" in one.message]


async def test_a_worker_keeps_its_job_at_the_old_hub_and_at_the_new(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Over plain HTTP it has nothing but its token and its lease, and goes to whatever hub a balancer chooses."""
    async with serving(App(url), QUIET) as old:
        token = (await work(old.client, "register_worker", worker_id="w", tasks=["t"], max_concurrent_jobs=2))["token"]
        for _ in range(2):
            assert (await old.client.post("/api/jobs", json={"task": "t"})).status_code == 201
        first = await work(old.client, "claim_job", worker_id="w", token=token, wait=20)
        async with serving(App(url, secret=SECRET), QUIET) as new:
            assert (await work(new.client, "heartbeat", worker_id="w", token=token))["type"]
            for _ in range(3):
                _later(old)
                assert (await said(old.client, "heartbeat", worker_id="w", token=token)).status_code == 200
                assert (await old.client.get("/readyz")).status_code == 200
            assert len([one for one in _warnings(caplog) if "set it, and start this hub again" in one]) == 1
            second = await work(old.client, "claim_job", worker_id="w", token=token, wait=20)
            for job in (first, second):
                done = await said(
                    new.client, "complete_job", worker_id="w", job_id=job["job_id"], lease=job["lease"], result=1
                )
                assert done.status_code == 200, done.text
            assert await new.app.jobs.count(status="completed") == 2


async def test_what_the_new_hub_signs_is_not_void_at_the_old_one(url: str) -> None:
    """It says that it cannot tell (503), so that the worker asks again, and not that its job was taken (409)."""
    async with serving(App(url), QUIET) as old:
        await work(old.client, "register_worker", worker_id="before", tasks=["t"])
        async with serving(App(url, secret=SECRET), QUIET) as new:
            token = (await work(new.client, "register_worker", worker_id="w", tasks=["t"]))["token"]
            await new.client.post("/api/jobs", json={"task": "t"})
            job = await work(new.client, "claim_job", worker_id="w", token=token, wait=20)
            done = {"worker_id": "w", "job_id": job["job_id"], "lease": job["lease"], "result": 1}
            # At once, though the old hub has read its secrets a moment ago.
            for answer in (
                await said(old.client, "complete_job", **done),
                await said(old.client, "heartbeat", worker_id="w", token=token),
            ):
                assert answer.status_code == 503, answer.text
                assert answer.json()["type"].endswith("/secret-mismatch")
                assert "HEADRACE_SECRET" in answer.json()["detail"]
                assert answer.headers["Retry-After"]
            assert (await old.client.get("/readyz")).status_code == 200
            assert (await said(new.client, "complete_job", **done)).status_code == 200
            forged = await said(old.client, "heartbeat", worker_id="w", token=token.replace(token.split(".")[1], "00"))
            assert forged.status_code == 409, "what nobody signed is void everywhere"


async def test_a_day_later_the_hub_without_it_is_not_ready(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url, clock = f"sqlite:///{tmp_path}/jobs.db", FakeClock()
    async with serving(App(url, clock=clock), QUIET) as old:
        token = (await work(old.client, "register_worker", worker_id="w", tasks=["t"]))["token"]
        async with serving(App(url, clock=clock, secret=SECRET), QUIET) as new:
            assert (await old.client.get("/readyz")).json()["secret"] == "ok"
            clock.advance(DAY + 1)
            for _ in range(3):
                _later(old)
                ready = await old.client.get("/readyz")
                assert (ready.status_code, ready.json()["status"], ready.json()["store"]) == (503, "unready", "ok")
                assert ready.json()["secret"] == "failed"
                answer = await said(old.client, "heartbeat", worker_id="w", token=token)
                assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (503, "secret-mismatch")
            assert len([one for one in _warnings(caplog) if "not ready" in one]) == 1
            assert (await old.client.get("/healthz")).status_code == 200, "to start it again as it is helps nobody"
            assert (await new.client.get("/readyz")).status_code == 200


async def test_a_hub_that_has_nothing_to_go_on_with_is_not_ready(url: str) -> None:
    """No worker had come to any hub before: the store keeps no secret that the others would believe."""
    async with serving(App(url), QUIET) as old, serving(App(url, secret=SECRET), QUIET):
        _later(old)
        assert (await old.client.get("/readyz")).status_code == 503
        assert (await said(old.client, "register_worker", worker_id="w", tasks=["t"])).status_code == 503


async def test_a_hub_whose_secret_was_replaced_is_not_ready(url: str) -> None:
    async with serving(App(url, secret=SECRET), QUIET) as old, App(url, secret=OTHER) as new:
        assert (await old.client.get("/readyz")).status_code == 200
        await new.keys.replace_secret()
        _later(old)
        ready = await old.client.get("/readyz")
        assert (ready.status_code, ready.json()["secret"]) == (503, "failed")


async def test_a_hub_that_only_looks_makes_no_secret(url: str) -> None:
    async with serving(App(url), QUIET) as served:
        assert (await served.client.get("/readyz")).status_code == 200
        assert not await served.app.session.engine.documents.settings("lease-secret")


async def test_what_signed_before_is_removed_by_whoever_maintains(url: str) -> None:
    """Also if no hub and no web application is started again, and by a process that has not the secret."""
    clock, lease, id = FakeClock(), JobLease(uuid4(), 1, uuid4()), uuid4()
    async with App(url, clock=clock) as bare, serving(App(url, clock=clock), QUIET) as old:
        await old.hub.fleet.signing.lease(None, lease)
        await Tokens(bare).admits(id, None)
        pruner = Pruner(bare.session.engine, bare.session.writer, bare.host, uuid4())
        async with serving(App(url, clock=clock, secret=SECRET), QUIET) as new:
            text = await new.hub.fleet.signing.lease(None, lease)

            async def stored() -> tuple[bool, bool]:
                kept = {one.key: one.value for one in await bare.session.engine.documents.settings()}
                return "endpoints-secret" in kept, "data" in kept["lease-secret"]

            await pruner.tick()
            assert await stored() == (True, True)
            clock.advance(DAY + 1)
            await pruner.tick()
            assert await stored() == (False, False)
            assert await new.hub.fleet.signing.read_lease(None, text) == lease


async def test_a_web_application_that_runs_hears_of_the_secret(url: str) -> None:
    clock, id = FakeClock(), uuid4()
    async with App(url, clock=clock) as before, App(url, clock=clock, secret=SECRET) as app:
        old, new = Tokens(before), Tokens(app)
        await old.ready()
        address = old.of(id)
        await new.ready()
        assert await old.admits(id, address)
        assert await new.admits(id, address)
        assert not await old.admits(id, None)
        with pytest.raises(SecretMismatch):  # it cannot tell, and must not say that it is forged
            await old.admits(id, new.of(id))
        clock.advance(120)
        await old.ready()
        assert old.of(id) == address, "those with the secret believe it for a day"
        clock.advance(DAY)
        with pytest.raises(SecretMismatch):
            await old.ready()
        with pytest.raises(SecretMismatch):
            await old.admits(id, address)
        assert not await new.admits(id, address)
        assert not await before.session.engine.documents.settings("endpoints-secret")
