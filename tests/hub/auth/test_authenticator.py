"""The door: who is let in, who is not and why, and that a revoked key is refused at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
import websockets
from starlette.requests import HTTPConnection

from headrace import App
from headrace.core.auth.api_keys import Scope
from headrace.http.problems import Problem
from headrace.hub import Hub, HubOptions
from headrace.hub.auth.caller import LOCAL
from headrace.hub.server.operation import Bounded, Operation, OperationReply, OperationRequest
from headrace.testing import FakeClock
from tests.hub.live.listening import connected
from tests.hub.serving import Served, serving
from tests.support.apps import ENGINES, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine


async def nothing(ask: OperationRequest) -> OperationReply:
    return OperationReply()


def operation(scope: Scope | None, bounded: Bounded = "nothing") -> Operation:
    return Operation(name="x", method="GET", path="/x", summary="", scope=scope, bounded=bounded, do=nothing)


def connection(authorization: str | None) -> HTTPConnection:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1", "replace"))]
    return HTTPConnection({"type": "http", "headers": headers})


def refused(hub: Hub, authorization: str | None, operation: Operation) -> Problem:
    with pytest.raises(Problem) as raised:
        hub.authenticator.caller(connection(authorization), operation)
    return raised.value


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def test_a_caller_is_what_its_key_says() -> None:
    async with App("memory://") as app:
        shop = await app.keys.create("shop", ["read", "submit"], customer="acme", tasks=["add"], queues=["mail"])
        hub = Hub(app)
        async with hub.authenticator.open():
            for said in (f"Bearer {shop.text}", f"bearer  {shop.text} "):
                caller = hub.authenticator.caller(connection(said), operation("read"))
                assert (caller.name, caller.key, caller.customer) == ("shop", shop.key.prefix, "acme")
                assert caller.scopes == frozenset({"read", "submit"})
                assert (caller.tasks, caller.queues) == (frozenset({"add"}), frozenset({"mail"}))
            assert hub.authenticator.authenticate(shop.text) == caller
            assert hub.authenticator.socket(connection(f"Bearer {shop.text}")) == caller
            assert hub.authenticator.socket(connection(None)) is None


async def test_no_key_and_a_wrong_key_are_401_and_say_how() -> None:
    async with App("memory://") as app:
        text = (await app.keys.create("shop", ["read"])).text
        hub = Hub(app)
        async with hub.authenticator.open():
            for said in (None, "", "Basic aGk6aGk=", f"Basic {text}"):
                problem = refused(hub, said, operation("read"))
                assert (problem.status, problem.headers["WWW-Authenticate"]) == (401, 'Bearer realm="headrace"')
                assert "Authorization: Bearer hr_" in problem.details.detail
            for wrong in ("x", "hr_", text[:-1], text + "x", text[:11] + "A" * 35, text.upper(), "hr_é"):
                problem = refused(hub, f"Bearer {wrong}", operation("read"))
                assert problem.status == 401
                assert problem.headers["WWW-Authenticate"] == 'Bearer realm="headrace", error="invalid_token"'
                assert wrong == "x" or wrong not in problem.details.detail


async def test_a_missing_scope_is_named() -> None:
    async with App("memory://") as app:
        text = (await app.keys.create("shop", ["read", "submit"])).text
        hub = Hub(app)
        async with hub.authenticator.open():
            problem = refused(hub, f"Bearer {text}", operation("act"))
            assert problem.status == 403
            assert problem.details.detail == "this needs the scope act; the key 'shop' has read, submit"
            assert 'error="insufficient_scope", scope="act"' in problem.headers["WWW-Authenticate"]


async def test_what_concerns_several_customers_is_not_for_the_key_of_one() -> None:
    async with App("memory://") as app:
        acme = (await app.keys.create("acme", ["read"], customer="acme")).text
        own = (await app.keys.create("own", ["read"])).text
        hub = Hub(app)
        async with hub.authenticator.open():
            assert refused(hub, f"Bearer {acme}", operation("read", bounded="operator")).status == 403
            assert (
                hub.authenticator.caller(connection(f"Bearer {own}"), operation("read", bounded="operator")).name
                == "own"
            )


async def test_what_needs_no_scope_needs_no_key() -> None:
    async with App("memory://") as app:
        await app.keys.create("shop", ["read"])
        hub = Hub(app)
        async with hub.authenticator.open():
            assert hub.authenticator.caller(connection(None), operation(None)).scopes == frozenset()
            assert hub.authenticator.caller(connection("Bearer hr_wrong"), operation(None)).scopes == frozenset()


async def test_before_and_after_it_is_open_nobody_comes_in() -> None:
    async with App("memory://") as app:
        hub = Hub(app)
        assert refused(hub, None, operation("read")).status == 401
        async with hub.authenticator.open():
            pass
        assert refused(hub, None, operation("read")).status == 401


async def test_a_key_expires_and_what_it_has_open_ends() -> None:
    clock = FakeClock(datetime(2026, 1, 31, tzinfo=UTC))
    async with App("memory://", clock=clock) as app:
        made = await app.keys.create("shop", ["read"], expires=timedelta(days=90))
        hub, closed = Hub(app), list[str | None]()
        hub.authenticator.on_revoked(closed.append)
        async with hub.authenticator.open():
            clock.advance(days=90, seconds=-1)
            caller = hub.authenticator.authenticate(made.text)
            assert hub.authenticator.knows(caller)
            clock.advance(1)
            problem = refused(hub, f"Bearer {made.text}", operation("read"))
            assert (problem.status, problem.details.detail) == (401, "the key 'shop' has expired")
            await until(lambda: closed == [made.key.prefix])
            assert not hub.authenticator.knows(caller)
        hub = Hub(app)
        async with hub.authenticator.open():  # keys that have expired are keys: they do not open the door to everybody
            assert refused(hub, None, operation("read")).status == 401


async def test_a_key_that_cannot_be_read_opens_nothing_and_keeps_the_door_shut() -> None:
    async with App("memory://") as app:
        await app.session.engine.documents.put_setting("key:odd", '{"of": "another version"}', 0)
        hub = Hub(app, HubOptions(host="0.0.0.0"))
        async with hub.authenticator.open():
            assert refused(hub, None, operation("read")).status == 401


async def test_use_is_noted() -> None:
    async with App("memory://") as app:
        made = await app.keys.create("shop", ["read"])
        hub = Hub(app)
        async with hub.authenticator.open():
            assert (await app.keys.list())[0].used_at is None
            hub.authenticator.authenticate(made.text)

            async def noted() -> bool:
                return (await app.keys.list())[0].used_at is not None

            await until(noted)


async def test_a_listener_that_fails_keeps_no_other_from_hearing() -> None:
    async with App("memory://") as app:
        await app.keys.create("shop", ["read"])
        hub, closed = Hub(app), list[str | None]()
        hub.authenticator.on_revoked(lambda key: 1 / 0)
        undo = hub.authenticator.on_revoked(closed.append)
        async with hub.authenticator.open():
            await app.keys.create("other", ["read"])
            await app.keys.revoke("shop")
            await until(lambda: len(closed) == 1)
            undo()
            await app.keys.revoke("other")
            await until(lambda: not hub.authenticator._holders)
        assert len(closed) == 1


@pytest.fixture(params=ENGINES[1:])
async def hubs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Served]]:
    """Two hubs on one store, which has a key of an operator's."""
    url = url_of(request.param, tmp_path)
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(App(url))
        await app.keys.create("operator", ["admin", "read"])
        yield [await stack.enter_async_context(serving(url)) for _ in range(2)]


async def test_a_key_revoked_on_one_hub_is_refused_on_every_other(hubs: list[Served]) -> None:
    one, other = hubs
    operator = (await one.app.keys.create("second", ["admin", "read"])).text

    async def status(hub: Served, text: str) -> int:
        return (await hub.client.get("/api/version", headers=bearer(text))).status_code

    async def known(text: str) -> bool:
        return [await status(hub, text) for hub in hubs] == [200, 200]

    await until(lambda: known(operator))
    wanted = {"name": "shop", "scopes": ["read"]}
    made: httpx2.Response = await one.client.post("/api/keys", json=wanted, headers=bearer(operator))
    assert made.status_code == 201
    shop = made.json()["text"]
    await until(lambda: known(shop))
    closed = list[str | None]()
    other.hub.authenticator.on_revoked(closed.append)
    assert (await one.client.delete("/api/keys/shop", headers=bearer(operator))).status_code == 204
    await until(lambda: closed == [shop[:11]])
    assert await status(other, shop) == 401
    assert await status(other, operator) == 200


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_door_that_hears_no_more_of_keys_lets_nobody_in(keyed: bool, tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    async with App(f"sqlite:///{file}") as app:
        text = (await app.keys.create("ci", ["read"])).text if keyed else "none"
        async with serving(app) as hub:
            let_in = (await hub.client.get("/api/jobs", headers=bearer(text))).status_code
            assert let_in == 200
            (caller,) = [hub.hub.authenticator.authenticate(text)] if keyed else [LOCAL]
            revoked = list[str | None]()
            hub.hub.authenticator.on_revoked(revoked.append)
            file.rename(tmp_path / "elsewhere")
            await until(lambda: not hub.hub.authenticator.alive)
            (tmp_path / "elsewhere").rename(file)  # the store is back, but keys are not looked at any more
            answer = await hub.client.get("/api/jobs", headers=bearer(text))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert caller.key in revoked, "what it has open is closed"
            assert not hub.hub.authenticator.knows(caller)
            assert (await hub.client.get("/healthz")).status_code == 503, "so that it is started anew"
            with pytest.raises(websockets.InvalidStatus):
                async with connected(hub, additional_headers=bearer(text)):
                    pass
