"""Schedules over HTTP."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from headrace.hub.auth.caller import LOCAL, Caller
from tests.hub.api.world import world
from tests.hub.callers import AS, let_in

RULE = {"kind": "cron", "expr": "0 2 * * *", "tz": "Europe/Berlin"}
NIGHTLY = {"rule": RULE, "task": "resize", "payload": {"image": "cat.png"}, "priority": "low"}


async def test_a_schedule_is_made_looked_at_and_removed(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        made = (await hub.client.put("/api/schedules/nightly", json=NIGHTLY)).json()
        assert (made["task"], made["queue"], made["priority"], made["source"]) == ("resize", "images", 15, "dynamic")
        assert made["rule"]["expr"] == "0 2 * * *"
        assert made.pop("warnings") == []
        assert (await hub.client.get("/api/schedules/nightly")).json() == made
        assert (await hub.client.get("/api/schedules")).json() == {"items": [made]}
        changed = NIGHTLY | {"rule": {"kind": "every", "minutes": 5}}
        assert (await hub.client.put("/api/schedules/nightly", json=changed)).json()["rule"]["kind"] == "every"
        assert (await hub.client.delete("/api/schedules/nightly")).status_code == 204
        assert (await hub.client.get("/api/schedules/nightly")).status_code == 404
        assert {one.by for one in await hub.app.store.audit()} == {"local"}


async def test_a_schedule_is_paused_resumed_and_triggered(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        await hub.client.put("/api/schedules/nightly", json=NIGHTLY)
        paused = (await hub.client.post("/api/schedules/nightly/pause")).json()
        assert (paused["state"], paused["next_fire"]) == ("paused", None)
        assert (await hub.client.post("/api/schedules/nightly/resume")).json()["state"] == "active"
        answer = await hub.client.post("/api/schedules/nightly/trigger")
        assert answer.status_code == 201
        job = await hub.app.jobs.get(UUID(answer.json()["job_id"]))
        assert (job.task, job.payload["image"], job.spec.schedule) == ("resize", "cat.png", "nightly")
        for act in ("pause", "resume", "trigger"):
            assert (await hub.client.post(f"/api/schedules/nothing/{act}")).status_code == 404


async def test_next_fires_are_told_in_both_times(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        await hub.client.put("/api/schedules/nightly", json=NIGHTLY)
        fires = (await hub.client.get("/api/schedules/nightly/fires?n=3")).json()["items"]
        assert len(fires) == 3
        assert all("T02:00:00+0" in fire["local"] and fire["at"].endswith("Z") for fire in fires)
        assert (await hub.client.get("/api/schedules/nothing/fires")).status_code == 404
        assert (await hub.client.get("/api/schedules/nightly/fires?n=0")).status_code == 400


async def test_a_rule_is_tried_and_nothing_is_stored(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        fires = (await hub.client.post("/api/schedules/fires", json={"rule": RULE, "n": 2})).json()["items"]
        assert [fire["local"][11:19] for fire in fires] == ["02:00:00"] * 2
        assert await hub.app.schedules.list() == []


async def test_a_task_that_nobody_has_is_said(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        answer = await hub.client.put("/api/schedules/nightly", json=NIGHTLY | {"task": "risize"})
        assert answer.status_code == 200
        assert "risize" in answer.json()["warnings"][0]


async def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        for said, named in (
            ({"rule": {"kind": "cron", "expr": "61 * * * *"}}, "not a cron expression"),
            ({"rule": {"kind": "cron", "expr": "* * * * *", "zone": "UTC"}}, "zone"),
            ({"rule": {"kind": "every", "seconds": 0}}, "longer than 0"),
            ({"rule": RULE, "jitter": 5}, "jitter"),
            ({"rule": {"kind": "sometimes"}}, "sometimes"),
        ):
            answer = await hub.client.put("/api/schedules/nightly", json=NIGHTLY | said)
            assert answer.status_code == 400, said
            assert named in answer.json()["detail"]
        wrong = NIGHTLY | {"payload": {"image": 7}}
        answer = await hub.client.put("/api/schedules/nightly", json=wrong)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "payload.image")
        assert await hub.app.schedules.list() == []


async def test_a_bound_key_schedules_and_triggers_only_what_it_may_submit(tmp_path: Path) -> None:
    bound = Caller(name="bound", scopes=LOCAL.scopes, tasks=frozenset({"resize"}), queues=frozenset({"images"}))
    async with world(tmp_path) as hub:
        await hub.client.put("/api/schedules/other", json=NIGHTLY | {"task": "report"})
        await hub.client.put("/api/schedules/elsewhere", json=NIGHTLY | {"queue": "default"})
        let_in(hub, bound)
        by = {AS: bound.name}
        assert (await hub.client.put("/api/schedules/nightly", json=NIGHTLY, headers=by)).status_code == 200
        assert (await hub.client.post("/api/schedules/nightly/trigger", headers=by)).status_code == 201
        for name, more in (("other", {"task": "report"}), ("elsewhere", {"queue": "default"})):
            made = await hub.client.put("/api/schedules/mine", json=NIGHTLY | more, headers=by)
            fired = await hub.client.post(f"/api/schedules/{name}/trigger", headers=by)
            assert (made.status_code, fired.status_code) == (403, 403)


async def test_what_is_our_own_is_not_scheduled(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        for more in ({"task": "headrace.deliver"}, {"queue": "headrace.webhooks"}):
            answer = await hub.client.put("/api/schedules/forged", json=NIGHTLY | more)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (403, next(iter(more)))
