"""The example of Starlette, as a client meets it."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.endpoints.examples import running

pytestmark = pytest.mark.timeout(240)

GREEN = {"item": "green", "count": 3}


def test_an_order_is_packed(tmp_path: Path) -> None:
    with (
        running("starlette", "service:web", tmp_path) as address,
        httpx2.Client(base_url=address, timeout=120, trust_env=False) as client,
    ):
        answer = client.post("/orders/tea", json=GREEN)
        assert answer.status_code == 202
        links = answer.json()["links"]
        done = client.get(links["result"] + "&wait=60")
        assert (done.status_code, done.json()) == (200, {"shop": "tea", "total": 13.5})
        at_once = client.post("/orders/tea", json=GREEN, headers={"Prefer": "wait=30"})
        assert (at_once.status_code, at_once.json()) == (200, done.json())
        missing = client.post("/orders/tea", json={"item": "cake"}, headers={"Prefer": "wait=30"})
        assert (missing.status_code, missing.json()["detail"]) == (404, "tea has no cake")
        assert client.post("/orders/tea", json={"count": 1}).json()["errors"][0]["field"] == "body.order.item"
