"""Limits and rates over HTTP."""

from __future__ import annotations

from pathlib import Path

from headrace.core.limits.rate import Rate
from tests.hub.api.world import world


async def test_limits_are_set_listed_reset_and_forgotten(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        said = {"max_concurrency": 5, "max_per_key": 1}
        found = (await hub.client.patch("/api/limits/resize", json=said)).json()
        assert found == {"task": "resize", **said, "rates": [], "live": True, "unreadable": None, "warnings": []}
        assert [one["task"] for one in (await hub.client.get("/api/limits")).json()["items"]] == ["resize"]
        assert (await hub.client.get("/api/limits/resize")).json()["max_per_key"] == 1
        assert (await hub.client.post("/api/limits/resize/reset")).json()["max_concurrency"] is None
        assert (await hub.client.delete("/api/limits/resize")).status_code == 404
        assert (await hub.client.get("/api/limits/nothing")).status_code == 404
        [warning] = (await hub.client.patch("/api/limits/nothing", json=said)).json()["warnings"]
        assert "knows a task named 'nothing'" in warning
        assert (await hub.client.delete("/api/limits/nothing")).status_code == 204
        assert (await hub.app.store.audit())[0].by == "local"


async def test_rates_are_set_listed_reset_and_forgotten(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        said = {"limit": 100, "per": 60, "kind": "sliding", "keyed": False}
        await hub.client.patch("/api/limits/resize", json={"rates": ["stripe"]})
        assert (await hub.client.get("/api/rates/stripe")).status_code == 404
        found = (await hub.client.put("/api/rates/stripe", json=said)).json()
        assert found == {"name": "stripe", **said, "warnings": []}
        assert await hub.app.rates.list() == {"stripe": Rate(100, per=60, kind="sliding")}
        assert (await hub.client.get("/api/rates")).json() == {"items": [found]}
        assert (await hub.client.get("/api/rates/stripe")).json() == found
        assert (await hub.client.post("/api/rates/stripe/reset")).status_code == 204
        assert (await hub.client.delete("/api/rates/stripe")).status_code == 404
        [warning] = (await hub.client.put("/api/rates/stirpe", json=said)).json()["warnings"]
        assert "names the rate 'stirpe'" in warning
        assert (await hub.client.delete("/api/rates/stirpe")).status_code == 204
        assert (await hub.client.put("/api/rates/stripe", json=said | {"kind": "leaky"})).status_code == 400
