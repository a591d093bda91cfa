"""Queues over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.hub.api.world import world


async def test_queues_are_listed_with_their_counts(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        assert (await hub.client.get("/api/queues")).json() == {"items": [], "cursor": None}
        await hub.app.submit("resize", {"image": "cat.png"})
        [queue] = (await hub.client.get("/api/queues")).json()["items"]
        assert (queue["name"], queue["counts"], queue["paused"]) == ("images", {"queued": 1}, False)
        assert (await hub.client.get("/api/queues/images")).json()["counts"] == {"queued": 1}


async def test_queues_come_in_pages(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        names = [f"q{number:03}" for number in range(120)] + ["ü  /?&=+"]
        await hub.app.submit_many([await hub.app.draft("resize", {"image": "a"}, queue=name) for name in names])
        await hub.app.queues.set("q077", priority=7)
        whole = [one.name for one in await hub.app.queues.list()]
        first = (await hub.client.get("/api/queues")).json()
        assert ([one["name"] for one in first["items"]], len(first["items"])) == (whole[:100], 100)
        await hub.app.queues.set("a new one", priority=5)  # behind the first page: nothing comes twice, or not at all
        found, cursor = list[str](), None
        while True:
            asked = {"limit": 7} | ({} if cursor is None else {"cursor": cursor})
            page = (await hub.client.get("/api/queues", params=asked)).json()
            assert len(page["items"]) <= 7
            found += [one["name"] for one in page["items"]]
            if (cursor := page["cursor"]) is None:
                break
            assert cursor.isascii()
            assert cursor.isprintable()
        assert found == [one.name for one in await hub.app.queues.list()]
        for wrong in ("x", "%%%", "bm8=", "é"):
            answer = await hub.client.get("/api/queues", params={"cursor": wrong})
            assert (answer.status_code, "cursor" in answer.json()["detail"]) == (400, True), wrong
        assert (await hub.client.get("/api/queues", params={"limit": 1001})).status_code == 400


async def test_a_queue_is_paused_and_resumed_by_the_caller(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        paused = (await hub.client.post("/api/queues/images/pause")).json()
        assert (paused["paused"], paused["paused_by"], paused["warnings"]) == (True, "local", [])
        assert (await hub.client.post("/api/queues/images/resume")).json()["paused"] is False
        assert [(one.verb, one.by) for one in await hub.app.store.audit()] == [("resume", "local"), ("pause", "local")]


async def test_a_queue_is_set_reset_and_forgotten(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        said = {"priority": 5, "max_concurrency": 3, "rates": ["stripe"], "by_customer": True}
        found = (await hub.client.patch("/api/queues/images", json=said)).json()
        assert {name: found[name] for name in said} == said
        assert "nobody has defined the rate 'stripe'" in found["warnings"][0]
        assert (await hub.client.patch("/api/queues/images", json={"priority": 6})).json()["max_concurrency"] == 3
        assert (await hub.client.post("/api/queues/images/reset")).json()["priority"] == 0
        assert (await hub.client.delete("/api/queues/images")).status_code == 404
        await hub.client.patch("/api/queues/images", json=said)
        assert (await hub.client.delete("/api/queues/images")).status_code == 204


async def test_a_slip_is_said(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        assert (await hub.client.get("/api/queues/imgaes")).status_code == 404
        [warning] = (await hub.client.post("/api/queues/imgaes/pause")).json()["warnings"]
        assert "knows a queue named 'imgaes'" in warning
        refused = await hub.client.patch("/api/queues/images", json={"prioritty": 5})
        assert refused.status_code == 400
        assert "prioritty" in refused.json()["detail"]
        assert (await hub.client.patch("/api/queues/images", json={"max_concurrency": 0})).status_code == 400


async def test_a_name_may_have_a_slash(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        await hub.app.queues.set("mail/bulk", priority=3)
        assert (await hub.client.get("/api/queues/mail%2Fbulk")).json()["priority"] == 3
        assert (await hub.client.post("/api/queues/mail/bulk/pause")).json()["name"] == "mail/bulk"
