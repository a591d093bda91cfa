"""What every operation has in common, over a real server on a real port."""

from __future__ import annotations

from pathlib import Path

import httpx2

from headrace.hub import HubOptions
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


async def test_a_parameter_is_given_once_and_has_a_value(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        for query in ("step=hour&step=hour", "since=null", "since=0.5", "step="):
            answer = await hub.client.get(f"/api/charts?{query}")
            assert answer.status_code == 400, query
            assert answer.json()["errors"][0]["field"] == query.partition("=")[0]


async def test_a_method_that_is_not_for_a_path_is_told_which_are(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        for method, path, allowed in (
            ("PUT", "/api/version", "GET, HEAD"),
            ("POST", "/api/queues/images", "DELETE, GET, HEAD, PATCH"),
            ("PATCH", "/api/queues/images/pause", "POST"),  # and sets no queue of the name images/pause
            ("GET", "/api/schedules/nightly/trigger", "POST"),
            ("GET", "/api/jobs/act", "POST"),  # and asks for no job of the id act
            ("TRACE", "/api/stats", "GET, HEAD"),
        ):
            answer = await hub.client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed), path
            assert answer.headers["content-type"] == "application/problem+json"
        assert (await hub.client.get("/api/queues")).json() == {"items": [], "cursor": None}


async def test_a_path_is_found_whatever_its_root(tmp_path: Path) -> None:
    """Paths without parts that vary are looked up, all others are matched; both answer alike."""
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        assert (await hub.client.head("/api/version")).status_code == 200
        assert (await hub.client.delete("/api/version")).status_code == 405
        assert (await hub.client.get("/api/version/")).status_code in (307, 404)
    options = HubOptions(root_path="/behind", maintenance=False, webhooks=False)
    async with serving(f"sqlite:///{tmp_path}/jobs.db", options) as hub:
        answer = await hub.client.get("/api/version")  # the proxy takes the root off
        assert (answer.status_code, set(answer.json())) == (200, {"headrace"})
        assert (await hub.client.post("/api/jobs", json={"task": "a"})).status_code == 201
        nowhere = (await hub.client.get("/nothing")).json()
        assert nowhere["detail"] == "/behind/nothing: /behind/docs lists all"
