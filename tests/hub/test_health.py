"""Probes and metrics of a hub."""

from __future__ import annotations

import asyncio
import json
import resource
import secrets
import urllib.error
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace import App, Every
from headrace.errors import Unavailable
from headrace.hub import HubOptions, health
from headrace.hub.auth.authenticator import Authenticator
from tests.cli.patience import until_sync
from tests.hub.process import started
from tests.hub.serving import Served, serving
from tests.support.servers.postgres import Server, shared
from tests.support.until import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


async def test_a_hub_that_is_well_says_so(url: str) -> None:
    async with serving(url, HubOptions(webhooks=False)) as hub:
        health, ready = await hub.client.get("/healthz"), await hub.client.get("/readyz")
        assert (health.status_code, health.json()) == (
            200,
            {"status": "ok", "loops": {"work": "ok", "keys": "ok", "maintenance": "ok"}},
        )
        assert (ready.status_code, ready.json()["status"], ready.json()["store"]) == (200, "ready", "ok")


async def test_a_hub_that_drains_is_not_ready_but_well(url: str) -> None:
    async with serving(url) as hub:
        hub.hub.draining.set()
        ready = await hub.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        assert (await hub.client.get("/healthz")).status_code == 200


async def test_a_store_that_is_away_makes_a_hub_unready(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(url) as hub:
        asked = 0

        async def away(*, write: bool = False) -> None:
            nonlocal asked
            asked += not write
            raise Unavailable("away")

        monkeypatch.setattr(hub.app.store, "ping", away)
        answers = await asyncio.gather(*(hub.client.get("/readyz") for _ in range(20)))
        assert {(one.status_code, one.json()["status"], one.json()["store"]) for one in answers} == {
            (503, "unready", "failed")
        }
        assert asked == 1, "anybody may probe: the store is asked once a second for all of them"
        assert (await hub.client.get("/healthz")).status_code == 200, "starting anew would not help"


async def test_a_database_that_is_frozen_is_noticed_and_so_is_its_return(tmp_path: Path) -> None:
    """A server that takes connections and answers nothing is the worst of those that are away."""
    server = Server.start(tmp_path)
    try:
        async with serving(server.url(server.create_database()), HubOptions(webhooks=False)) as hub:

            async def ready() -> tuple[int, str]:
                answer = await hub.client.get("/readyz")
                return answer.status_code, answer.json()["status"]

            async def unready() -> bool:
                return await ready() == (503, "unready")

            async def back() -> bool:
                return await ready() == (200, "ready")

            assert await back()
            server.freeze()
            await until(unready)
            assert (await hub.client.get("/healthz")).status_code == 200, "starting anew would not help"
            server.thaw()
            await until(back)
    finally:
        server.thaw()
        server.stop()


async def test_a_loop_that_died_fails_both_probes(url: str) -> None:
    async with serving(url) as hub:
        hub.hub.vitals.loops["follower"] = lambda: False
        for path in ("/healthz", "/readyz"):
            answer = await hub.client.get(path)
            assert answer.status_code == 503
            assert answer.json()["loops"] == {"work": "ok", "keys": "ok", "follower": "failed"}


async def test_a_hub_that_does_not_hear_of_revoked_keys_is_not_well(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(authenticator: Authenticator, rings: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Authenticator, "_follow", broken)
    async with serving(url) as hub:
        await until(lambda: not hub.hub.authenticator.alive)
        assert (await hub.client.get("/healthz")).json()["loops"]["keys"] == "failed"


async def ready(hub: Served) -> tuple[int, str]:
    answer = await hub.client.get("/readyz")
    return answer.status_code, answer.json()["status"]


@asynccontextmanager
async def refusing(hub: Served, caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """The hub is ready before the block, not ready once its store refuses, and ready again after it."""

    async def is_ready() -> bool:
        return await ready(hub) == (200, "ready")

    async def is_unready() -> bool:
        return await ready(hub) == (503, "unready")

    await until(is_ready)
    yield
    await until(is_unready)
    await hub.app.store.ping()  # it answers all the same
    assert (await hub.client.get("/healthz")).status_code == 200, "starting anew would not help"
    assert "the store takes no writes" in caplog.text


async def test_a_file_that_can_only_be_read_is_not_ready(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(url) as hub:

        async def only_read(on: bool) -> None:
            writer = hub.app.session.engine._writer  # type: ignore[attr-defined]  # that of SQLite
            await writer.run(lambda connection: connection.execute(f"PRAGMA query_only = {int(on)}").fetchall())

        async with refusing(hub, caplog):
            await only_read(True)
        await only_read(False)
        await until(lambda: _is(hub, 200))


async def _is(hub: Served, status: int) -> bool:
    return (await ready(hub))[0] == status


async def test_a_role_that_may_only_read_is_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    server = shared()
    database, role = server.create_database(), f"reader_{secrets.token_hex(4)}"
    server.execute(f"CREATE ROLE {role} LOGIN")
    server.execute(f'ALTER DATABASE "{database}" OWNER TO {role}')
    url = server.url(database).replace("//postgres@", f"//{role}@")

    try:
        async with serving(url) as hub:
            async with refusing(hub, caplog):
                server.execute(f"REVOKE INSERT, UPDATE ON ALL TABLES IN SCHEMA headrace FROM {role}", database)
            server.execute(f"GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA headrace TO {role}", database)
            await until(lambda: _is(hub, 200))
            rows = server.execute("SELECT count(*) FROM headrace.leases WHERE name = 'ready'", database)
            assert rows == [(1,)], "one row for all probes"
    finally:
        server.execute(f'DROP DATABASE "{database}" WITH (FORCE)')
        server.execute(f"DROP ROLE {role}")


def test_a_full_disk_is_not_ready(tmp_path: Path) -> None:
    with started(tmp_path, "hub", "--url", f"sqlite:///{tmp_path}/jobs.db") as hub:
        pid = hub.process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))

        def unready() -> bool:
            try:
                hub.get("/readyz")
            except urllib.error.HTTPError as error:
                return error.code == 503 and json.loads(error.read())["store"] == "failed"
            return False

        until_sync(unready)
        assert hub.get("/healthz")["status"] == "ok"
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
        hub.until_ready()


async def test_a_store_that_is_slow_to_write_is_ready(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write, too: who must wait for them is no less ready, unless it takes very long."""
    async with serving(url) as hub:
        gate, ping = asyncio.Event(), hub.app.store.ping

        async def slow(*, write: bool = False) -> None:
            if write:
                await gate.wait()
            await ping()

        monkeypatch.setattr(hub.app.store, "ping", slow)
        monkeypatch.setattr(health, "PROBE_CACHE_SECONDS", 0.0)
        assert await ready(hub) == (200, "ready")
        assert await ready(hub) == (200, "ready")
        monkeypatch.setattr(health, "WRITE_TIMEOUT_SECONDS", 0.1)
        await until(lambda: _is(hub, 503))
        gate.set()
        await until(lambda: _is(hub, 200))


@pytest.mark.parametrize("scheme", ["sqlite", "memory"])
@pytest.mark.every_engine
async def test_ping_asks_the_store(scheme: str, url: str) -> None:
    async with App("memory://" if scheme == "memory" else url) as app:
        await app.store.ping()
        await app.store.ping(write=True)
        await app.store.ping(write=True)


async def test_metrics_tell_of_the_store_and_of_requests(url: str) -> None:
    async with serving(url) as hub:
        await hub.client.get("/api/version")
        await hub.client.get("/api/nothing")
        page = await hub.client.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = page.text.splitlines()
        assert "headrace_store_up 1.0" in lines
        assert 'headrace_hub_requests_total{operation="version",status="200"} 1.0' in lines
        assert 'headrace_hub_requests_total{operation="none",status="404"} 1.0' in lines
        assert 'headrace_hub_open{kind="http"} 1.0' in lines, "this very request"
        assert "headrace_hub_draining 0.0" in lines


async def test_two_hubs_in_one_process_tell_their_own(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/a.db") as one, serving(f"sqlite:///{tmp_path}/b.db") as other:
        for _ in range(3):
            await one.client.get("/api/version")
        for hub, count in ((one, 3), (other, 0)):
            text = (await hub.client.get("/metrics")).text
            assert (f'operation="version",status="200"}} {count}.0' in text) is bool(count)


async def test_maintenance_is_a_loop_of_the_hub_only_if_asked_for(url: str) -> None:
    async with serving(url, HubOptions(webhooks=False, maintenance=False)) as hub:
        assert "maintenance" not in (await hub.client.get("/readyz")).json()["loops"]


async def test_the_hub_keeps_the_store_in_order(url: str) -> None:
    """A schedule fires although there is no worker."""
    app = App(url)

    @app.task
    async def tick() -> None: ...

    async with serving(app, HubOptions(webhooks=False)):
        await app.schedules.set("soon", Every(0.2), tick.draft())

        async def fired() -> bool:
            return bool((await app.jobs.list(schedule="soon")).items)

        await until(fired)
