"""Keys over HTTP: made, listed, revoked, and never more than their maker has."""

from __future__ import annotations

from typing import Any

import httpx2

from headrace import App
from headrace.core.auth.api_keys import Scope
from tests.hub.serving import Served, serving


async def post(hub: Served, text: str, **wanted: Any) -> httpx2.Response:
    return await hub.client.post("/api/keys", json=wanted, headers={"authorization": f"Bearer {text}"})


async def served_with(app: App, *scopes: Scope, **bounds: Any) -> str:
    return (await app.keys.create("operator", scopes, **bounds)).text


async def test_a_key_is_made_used_listed_and_revoked() -> None:
    async with App("memory://") as app:
        operator = await served_with(app, "admin", "read", "submit")
        async with serving(app) as hub:
            own = {"authorization": f"Bearer {operator}"}
            made = await post(hub, operator, name="shop", scopes=["read"], customer="acme", tasks=["add"], expires=60)
            assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
            key = made.json()["key"]
            assert made.json()["text"].startswith(key["prefix"])
            assert (key["name"], key["created_by"], key["customer"], key["tasks"]) == (
                "shop",
                "operator",
                "acme",
                ["add"],
            )
            listed = await hub.client.get("/api/keys", headers=own)
            assert [one["name"] for one in listed.json()["keys"]] == ["operator", "shop"]
            assert made.json()["text"] not in listed.text
            assert "digest" not in listed.text
            assert (await post(hub, operator, name="shop", scopes=["read"])).status_code == 409
            assert (await hub.client.delete("/api/keys/shop", headers=own)).status_code == 204
            assert (await hub.client.delete("/api/keys/shop", headers=own)).status_code == 404
            revoked, created = (await app.store.audit())[:2]
            assert (revoked.by, created.by) == ("operator", "operator")


async def test_nobody_grants_what_they_lack() -> None:
    async with App("memory://") as app:
        operator = await served_with(app, "admin", "submit", tasks=["add"])
        async with serving(app) as hub:
            assert (await post(hub, operator, name="a", scopes=["submit"], tasks=["add"])).status_code == 201
            for wanted, said in (
                ({"scopes": ["read"], "tasks": ["add"]}, "you lack the scope read"),
                ({"scopes": ["engine"], "tasks": ["add"]}, "on the command line only"),
                ({"scopes": ["submit"]}, "bound to the tasks add"),
            ):
                answer = await post(hub, operator, name="b", **wanted)
                assert (answer.status_code, said in answer.json()["detail"]) == (403, True)
            assert [key.name for key in await app.keys.list()] == ["a", "operator"]


async def test_what_is_wrong_is_named() -> None:
    async with App("memory://") as app, serving(app) as hub:
        for wanted, said in (
            ({"name": "a", "scopes": ["fly"]}, "scopes"),
            ({"name": "a", "scopes": []}, "needs a scope"),
            ({"name": "a", "scopes": ["read"], "colour": 1}, "colour"),
            ({"name": "", "scopes": ["read"]}, "name"),
            ({"name": "a", "scopes": ["admin"], "customer": "acme"}, "cannot have a customer"),
            ({"name": "a", "scopes": ["read"], "expires": -1}, "expires"),
            ({"name": "a", "scopes": ["read"], "expires": 1e300}, "expires"),
        ):
            answer = await hub.client.post("/api/keys", json=wanted)
            assert (answer.status_code, said in answer.json()["detail"]) == (400, True), wanted
        assert await app.keys.list() == []
