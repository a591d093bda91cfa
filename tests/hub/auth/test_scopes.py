"""Every operation and every message: nobody comes in without a key, and nobody without its scope."""

from __future__ import annotations

from starlette.routing import Route, WebSocketRoute

from headrace import App
from headrace.core.auth.api_keys import SCOPES, Scope
from headrace.dashboard.pages import VIEWS
from headrace.hub import Hub
from headrace.hub.live.messages import MESSAGES
from headrace.hub.operations import ENGINE, OPERATIONS
from tests.hub.live.listening import connected
from tests.hub.serving import serving
from tests.hub.walking import ask

SERVED = (*OPERATIONS, *ENGINE)


async def keys_without(app: App) -> dict[Scope, str]:
    """For each scope a key that has all others."""
    return {
        scope: (await app.keys.create(f"not {scope}", [one for one in SCOPES if one != scope])).text for scope in SCOPES
    }


def test_operations_are_told_apart() -> None:
    assert len({operation.name for operation in SERVED}) == len(SERVED)
    assert len({(operation.method, operation.path) for operation in SERVED}) == len(SERVED)


SOCKETS = {"/ws", "/rpc/hints"}
"""The messages of the first are a table of their own; the second is tested in ``tests/hub/test_rpc.py``."""
PAGES = {
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("GET", "/session"),
    ("GET", "/static/{version}/{name}"),
    ("POST", "/act"),
    *(("GET", view.path) for view in VIEWS),
}
"""Those of the dashboard, which has tables of its own (``tests/dashboard``)."""


def test_nothing_is_served_that_is_in_no_table() -> None:
    sockets, served, refused = set[str](), set[tuple[str, str]](), set[str]()
    for route in Hub(App("memory://"))._asgi.routes:
        if isinstance(route, WebSocketRoute):
            sockets.add(route.path)
        else:
            assert isinstance(route, Route), "nothing is mounted: what it serves would not be seen here"
            if not route.methods:  # all that are left
                assert route.endpoint.__name__ == "no_such_method"
                refused.add(route.path)
            served |= {(method, route.path) for method in route.methods or ()}
    heads = {("HEAD", path) for method, path in served if method == "GET"}  # as Starlette adds them
    assert served - heads == {(one.method, one.path) for one in SERVED} | PAGES
    assert refused == {one.path for one in SERVED}
    assert sockets == SOCKETS


async def test_without_a_key_every_operation_is_refused() -> None:
    async with App("memory://") as app:
        await app.keys.create("operator", ["admin"])
        async with serving(app) as hub:
            wrong = list[str]()
            for operation in SERVED:
                for key in (None, "hr_nobody"):
                    heard = await ask(hub, operation, key)
                    if operation.scope is None:
                        fine = heard.status not in (401, 403)
                    else:
                        fine = heard.status == 401 and heard.headers["www-authenticate"].startswith("Bearer ")
                    if not fine:
                        wrong.append(f"{operation.name} with {key}: {heard.status}")
            assert wrong == []


async def test_without_its_scope_every_operation_is_refused() -> None:
    async with App("memory://") as app:
        without = await keys_without(app)
        async with serving(app) as hub:
            wrong = list[str]()
            for operation in SERVED:
                if operation.scope is not None:
                    heard = await ask(hub, operation, without[operation.scope])
                    if heard.status != 403 or f"this needs the scope {operation.scope};" not in heard.text:
                        wrong.append(f"{operation.name}: {heard}")
            assert wrong == []


async def test_without_a_key_every_message_is_refused() -> None:
    async with App("memory://") as app:
        await app.keys.create("operator", ["admin"])
        async with serving(app) as hub:
            for message in MESSAGES:
                async with connected(hub) as socket:
                    answer = await socket.ask(message.name, **message.example)
                    refused = answer["type"] == "error" and answer["problem"]["status"] == 401
                    # Who it is can be said by everybody; what the example says is no key.
                    assert refused == (message.scope is not None or message.name == "authenticate"), answer


async def test_without_its_scope_every_message_is_refused() -> None:
    async with App("memory://") as app:
        without = await keys_without(app)
        async with serving(app) as hub:
            for message in MESSAGES:
                if message.scope is not None:
                    async with connected(hub) as socket:
                        assert (await socket.ask("authenticate", key=without[message.scope]))["type"] == "authenticated"
                        answer = await socket.ask(message.name, **message.example)
                        assert answer["problem"]["status"] == 403
                        assert f"this needs the scope {message.scope};" in answer["problem"]["detail"]
