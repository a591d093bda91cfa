"""What every operation has in common, over a real server on a real port."""

from __future__ import annotations

from pathlib import Path

import httpx2

from tests.hub.serving import serving


async def test_an_operation_is_answered_as_json(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        answer = await hub.client.get("/api/version")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert set(answer.json()) == {"headrace"}


async def test_a_path_that_is_none_is_a_problem(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        answer: httpx2.Response = await hub.client.get("/api/nothing")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == 404


async def test_an_unknown_parameter_is_named(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        answer = await hub.client.get("/api/version?colour=red")
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == "colour"
