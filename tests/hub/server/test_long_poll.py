"""Waiting within a request, for as long as whoever asks may."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.types import Message

from headrace import App
from headrace.http.problems import Problem
from headrace.hub import Hub
from headrace.hub.auth.caller import Caller
from headrace.hub.server.long_poll import wait_within
from headrace.hub.server.operation import OperationRequest
from tests.hub.serving import serving
from tests.support.until import until


async def test_a_request_that_waits_ends_with_its_key(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def add(a: int) -> int:
        return a

    async with app:
        keys = {name: (await app.keys.create(name, ["read"])).text for name in ("shop", "other")}
        async with serving(app) as hub:
            job = await add.submit(1)

            async def wait(name: str) -> int:
                headers = {"Authorization": f"Bearer {keys[name]}"}
                path = f"/api/jobs/{job.id}/result?wait=50"
                return (await hub.client.get(path, headers=headers)).status_code

            waiting = {name: asyncio.create_task(wait(name)) for name in keys}
            await until(lambda: len(app.session.watcher._followers.get(str(job.id), ())) == 2)
            await app.keys.revoke("shop")
            assert await waiting["shop"] == 401
            assert not waiting["other"].done()
            await app.worker(burst=True).run()
            assert await waiting["other"] == 200


def asked(hub: Hub, caller: Caller) -> OperationRequest:
    """A request of this caller, who goes on listening."""

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []}, receive)
    return OperationRequest(hub=hub, caller=caller, request=request, path={}, query=None, body=None)


async def test_a_result_that_comes_with_the_revocation_is_not_told() -> None:
    async with App("memory://") as app:
        key = await app.keys.create("shop", ["read"])
        hub, result = Hub(app), asyncio.get_running_loop().create_future()

        async def work() -> str:
            text: str = await result
            return text

        async with hub.authenticator.open():
            caller = hub.authenticator.authenticate(key.text)
            hub.authenticator.on_revoked(lambda key: result.set_result("a secret"))  # both in one turn of the loop
            waiting = asyncio.create_task(wait_within(asked(hub, caller), 50, work()))
            await asyncio.sleep(0)
            assert not waiting.done()
            await app.keys.revoke("shop")
            with pytest.raises(Problem) as refused:
                await waiting
            assert refused.value.status == 401
            assert result.done()


async def test_a_request_whose_key_was_revoked_before_it_waits_is_told_nothing() -> None:
    async with App("memory://") as app:
        key = await app.keys.create("shop", ["read"])
        hub = Hub(app)

        async def work() -> str:
            return "a secret"

        async with hub.authenticator.open():
            caller = hub.authenticator.authenticate(key.text)
            await app.keys.revoke("shop")
            await until(lambda: not hub.authenticator.knows(caller))
            with pytest.raises(Problem) as refused:
                await wait_within(asked(hub, caller), 50, work())
            assert refused.value.status == 401
