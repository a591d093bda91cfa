"""Tasks over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.hub.api.world import acting_as, world


async def test_tasks_are_listed_with_their_schemas(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        found = (await hub.client.get("/api/tasks")).json()["items"]
        assert [one["name"] for one in found] == ["fail", "resize"]
        task = (await hub.client.get("/api/tasks/resize")).json()
        assert (task["queue"], task["priority"], task["here"]) == ("images", 70, True)
        assert set(task["schema"]["properties"]) == {"image", "width"}
        assert (await hub.client.get("/api/tasks/nothing")).status_code == 404


async def test_a_key_that_is_bound_to_tasks_sees_no_others(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        acting_as(hub, "ann", tasks=frozenset({"resize"}))
        assert [one["name"] for one in (await hub.client.get("/api/tasks")).json()["items"]] == ["resize"]
        assert (await hub.client.get("/api/tasks/fail")).status_code == 404


async def test_a_task_is_paused_and_resumed_by_the_caller(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        paused = (await hub.client.post("/api/tasks/resize/pause")).json()
        assert (paused["name"], paused["paused"], paused["paused_by"], paused["warnings"]) == (
            *("resize", True, "local"),
            [],
        )
        shown = (await hub.client.get("/api/tasks/resize")).json()
        assert (shown["paused"], shown["paused_by"], shown["paused_at"]) == (True, "local", paused["paused_at"])
        assert not (await hub.client.get("/api/tasks/fail")).json()["paused"]
        assert (await hub.client.post("/api/tasks/resize/resume")).json()["paused"] is False
        acts = [(one.key, one.verb, one.by) for one in await hub.app.store.audit()]
        assert acts == [("limit:resize", "resume", "local"), ("limit:resize", "pause", "local")]
        [warning] = (await hub.client.post("/api/tasks/resise/pause")).json()["warnings"]
        assert "knows a task named 'resise'" in warning
