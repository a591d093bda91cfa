"""Stats, charts and failures over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.hub.api.world import acting_as, world


async def test_stats_count_the_whole_store(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        await hub.app.submit("resize", {"image": "cat.png"})
        stats = (await hub.client.get("/api/stats")).json()
        assert (stats["statuses"], stats["ledger"]["accepted"], stats["workers_alive"]) == ({"queued": 1}, 1, 0)


async def test_charts_tell_what_was_finished(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        await hub.app.submit("resize", {"image": "cat.png"})
        await hub.app.worker(burst=True).run()
        charts = (await hub.client.get("/api/charts?task=resize&step=minute")).json()
        [series] = charts["series"]
        assert (series["task"], series["queue"], series["total"]["completed"]) == ("resize", "images", 1)
        assert (await hub.client.get("/api/charts?task=fail")).json()["series"] == []
        asked = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00+01:00"}
        assert (await hub.client.get("/api/charts", params=asked)).json()["since"] == "2026-01-01T00:00:00Z"
        for wrong in ({"since": "2026-01-01T00:00:00"}, {"step": "week"}, {"since": "yesterday"}):
            assert (await hub.client.get("/api/charts", params=wrong)).status_code == 400


async def test_failures_are_in_groups_and_a_customer_sees_its_own(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        for customer in ("ann", "bob", "bob", None):
            await hub.app.submit("fail", {"why": f"because of {customer}"}, customer=customer)
        await hub.app.worker(burst=True).run()
        [group] = (await hub.client.get("/api/failures?task=fail&task=resize&status=failed")).json()["items"]
        assert (group["jobs"], group["type"], group["task"]) == (4, "ValueError", "fail")
        [group] = (await hub.client.get("/api/failures?customer=bob")).json()["items"]
        assert group["jobs"] == 2
        acting_as(hub, "ann")
        [group] = (await hub.client.get("/api/failures")).json()["items"]
        assert (group["jobs"], group["message"]) == (1, "because of ann")
        assert (await hub.client.get("/api/failures?customer=bob")).status_code == 403
        assert (await hub.client.get("/api/failures?customer=ann&customer=bob")).status_code == 403
        assert (await hub.client.get("/api/failures?customer=ann")).json()["items"][0]["jobs"] == 1


async def test_alerts_and_errors_are_listed_without_messages(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        for _ in range(5):
            await hub.app.submit("fail", {"why": "a secret"})
        await hub.app.worker(burst=True).run()
        answer = await hub.client.get("/api/alerts")
        assert [one["kind"] for one in answer.json()["items"]] == ["failing_task", "dead_letters"]
        answer = await hub.client.get("/api/errors?task=fail")
        [error] = answer.json()["items"]
        assert (error["type"], error["attempts"]) == ("ValueError", 5)
        assert "a secret" not in answer.text, "rollups outlive jobs, and messages name customers"
        assert (await hub.client.get("/api/errors?task=resize")).json()["items"] == []
        assert (await hub.client.get("/api/errors?limit=0")).status_code == 400
