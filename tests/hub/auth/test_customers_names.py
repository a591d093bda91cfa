"""Two customers whose keys send thousands of names of tasks at once: they stop each other no more than anybody else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Every
from headrace.core.defaults import MAX_CUSTOMER_PROFILES
from headrace.core.limits import profiles
from headrace.core.webhooks.delivery import TASK
from headrace.errors import TooManyProfiles
from headrace.http.problems import Problem
from headrace.hub.auth.quotas import SubmitRate
from headrace.hub.options import HubOptions
from tests.hub.serving import Served, serving
from tests.support.apps import ENGINES, url_of
from tests.support.until import until

MANY = 700

pytestmark = [
    pytest.mark.every_engine,
    pytest.mark.filterwarnings("ignore::headrace.client.api.tasks.UnregisteredTask"),
]


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def submit(hub: Served, key: str, task: str, **more: Any) -> Any:
    return await hub.client.post("/api/jobs", json={"task": task, "payload": {}, **more}, headers=bearer(key))


async def flood(hub: Served, key: str, prefix: str, many: int = MANY) -> list[dict[str, Any]]:
    """So many names in one bulk; the verdicts."""
    lines = b"".join(b'{"task":"%s-%d","payload":{}}\n' % (prefix.encode(), n) for n in range(many))
    kind = {"content-type": "application/x-ndjson"}
    answer = await hub.client.post("/api/jobs/bulk", content=lines, headers=bearer(key) | kind)
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_store_that_is_full_of_two_customers_names_stops_nobody_else(kind: str, tmp_path: Path) -> None:
    app = App(url_of(kind, tmp_path))

    @app.task
    async def child() -> None: ...

    @app.task
    async def parent() -> None:
        await child.submit()

    @app.task(schedule=Every(seconds=0.2))
    async def often() -> None:
        await child.submit()

    async with app:
        keys = {one: (await app.keys.create(one, ["submit"], customer=one)).text for one in ("acme", "evil", "good")}
        operator = (await app.keys.create("operator", ["submit", "read"])).text
        await app.webhooks.add("https://example.com/hook", events=["started", "completed"])
        told = await parent.options(customer="good").submit()
        async with serving(app, HubOptions(maintenance=False, webhooks=False)) as hub:
            many = [(keys[one], f"{one}-{turn}") for turn in range(2) for one in ("acme", "evil")]
            floods = [asyncio.create_task(flood(hub, *one)) for one in many]
            number = 0
            while not all(one.done() for one in floods) or number < 20:
                number += 1
                assert (await submit(hub, operator, f"operator-{number}")).status_code == 201
                if number <= MAX_CUSTOMER_PROFILES // 2:
                    assert (await submit(hub, keys["good"], f"good-{number}")).status_code == 201
            verdicts = [one for found in await asyncio.gather(*floods) for one in found]
            assert sum(one["verdict"] == "created" for one in verdicts) == 2 * MAX_CUSTOMER_PROFILES
            refused = [one["problem"] for one in verdicts if one["verdict"] == "refused"]
            assert {one["status"] for one in refused} <= {400, 429}
            [said] = {one["detail"] for one in refused if one["status"] == 400 and "'acme'" in one["detail"]}
            assert "as many as it may have" in said
            assert "wait until" in said
            late = await submit(hub, keys["acme"], "one-more")
            assert late.status_code in (400, 429)
            # In that state, what runs goes on, and whoever wants to hear of it does.
            async with app.worker():
                await told.result(timeout=40)
                await until(lambda: fired(app), what="a schedule fires, and its handler submits a child")
            messages = await app.jobs.list(task=TASK, limit=100, tag=str(told.id))
            assert len(messages.items) == 2, "started and completed"
            assert (await app.store.verify()).ok


@pytest.mark.parametrize("kind", ENGINES)
async def test_whoever_cancels_and_retries_has_no_more_names(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MAX_CUSTOMER_PROFILES", 5), ("MAX_CUSTOMERS_PROFILES", 20), ("MAX_PROFILES", 10)):
        monkeypatch.setattr(profiles, name, value)
    async with App(url_of(kind, tmp_path)) as app:
        keys = {
            one: (await app.keys.create(one, ["submit", "act", "read"], customer=one)).text
            for one in ("evil", "bad", "worse")
        }
        async with serving(app, HubOptions(maintenance=False, webhooks=False)) as hub:
            for one, key in keys.items():
                made = list[str]()
                for turn in range(3):
                    now = [one["job_id"] for one in await flood(hub, key, f"{one}-{turn}", 7) if "job_id" in one]
                    assert len(now) == 5
                    for id in now:
                        await app.jobs.handle(id).cancel()
                    made += now
                for id in made[:4]:
                    assert (await hub.client.post(f"/api/jobs/{id}/retry", json={}, headers=bearer(key))).is_success
                acted = [one async for one in app.jobs.where(status="cancelled", customer=one).retry()]
                assert [one.answer for one in acted].count("done") == 1
                assert {one.error for one in acted if one.answer == "refused"} == {"TooManyProfiles"}
                late = await hub.client.post(f"/api/jobs/{made[-1]}/retry", json={}, headers=bearer(key))
                assert late.status_code == 400
                assert late.json()["type"].endswith("/too-many-profiles")
                assert (await app.jobs.get(made[-1])).status == "cancelled"
        # However many those are, the operator has its own.
        for n in range(10):
            await app.submit(f"operator-{n}", {})
        with pytest.raises(TooManyProfiles):
            await app.submit("operator-10", {})


@pytest.mark.parametrize("kind", ENGINES)
async def test_what_is_moved_leaves_no_room_behind(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_CUSTOMER_PROFILES", 3), ("MAX_CUSTOMERS_PROFILES", 8), ("MAX_PROFILES", 8)):
        monkeypatch.setattr(profiles, name, value)
    async with App(url_of(kind, tmp_path)) as app:
        for n in range(3):
            await app.jobs.handle((await app.submit(f"mine-{n}", {}, customer="evil", queue="a")).id).move("b")
        others = [(await app.submit(f"other-{n}", {}, customer=f"c{n}")).id for n in range(5)]
        with pytest.raises(TooManyProfiles):  # lines are collected, in vain
            await app.submit("late", {}, customer="late")
        for id in others:
            await app.jobs.handle(id).cancel()
        with pytest.raises(TooManyProfiles, match="evil"):
            await app.submit("mine-3", {}, customer="evil")


async def test_a_delivery_is_sent_again_as_it_is() -> None:
    async with App("memory://") as app:
        key = (await app.keys.create("acme", ["submit", "act", "read"], customer="acme")).text
        await app.webhooks.add("https://example.com/hook", events=["submitted"], customer="acme")
        await app.submit("work", {}, customer="acme")
        [message] = (await app.jobs.list(task=TASK)).items
        await app.jobs.handle(message.id).cancel()
        again = f"/api/jobs/{message.id}/rerun"
        async with serving(app, HubOptions(maintenance=False, webhooks=False)) as hub:
            for body in (
                {"requires": {"x": True}},
                {"metadata": {"number": "abc"}},
                {"concurrency_key": None},
                {"priority": 89},
                {"tags": ["x"]},
                {"timeout": None},
                {"delay": 1.0},
            ):
                assert (await hub.client.post(again, json=body, headers=bearer(key))).status_code == 403
                [acted] = [one async for one in app.jobs.where(task=TASK).rerun(**body)]
                assert (acted.answer, acted.error) == ("refused", "TransitionRefused")
            assert (await hub.client.post(again, json={}, headers=bearer(key))).status_code == 201


async def fired(app: App) -> bool:
    return len((await app.jobs.list(task="child", status="completed", limit=10)).items) > 1


async def test_what_is_refused_of_a_bulk_counts_as_submits() -> None:
    async with App("memory://") as app:
        key = (await app.keys.create("acme", ["submit"], customer="acme", profiles=1)).text
        async with serving(app, HubOptions(submits_per_second=1, submit_burst=50, webhooks=False)) as hub:
            verdicts = await flood(hub, key, "acme", 2000)
            assert sum(one["verdict"] == "created" for one in verdicts) == 1
            statuses = [one["problem"]["status"] for one in verdicts if one["verdict"] == "refused"]
            assert statuses[0] == 400
            assert statuses[-1] == 429, "those behind are not even read"
            again = await submit(hub, key, "acme-0")
            assert again.status_code == 429
            assert int(again.headers["retry-after"]) > 50


def test_what_a_key_owes_is_paid_within_a_minute() -> None:
    rate = SubmitRate(10, burst=5)
    rate.owe(0.0, 1_000_000)
    with pytest.raises(Problem) as raised:
        rate.spend(1.0)
    assert raised.value.headers["Retry-After"] == "60"
    rate.spend(62.0)


async def test_the_setting_of_a_key_is_made_and_shown() -> None:
    async with App("memory://") as app:
        admin = (await app.keys.create("root", ["admin", "submit"])).text
        async with serving(app) as hub:

            async def make(**body: Any) -> Any:
                body = {"name": "acme", "scopes": ["submit"], **body}
                return await hub.client.post("/api/keys", json=body, headers=bearer(admin))

            for wrong in (
                {"profiles": 3},
                {"customer": "acme", "profiles": 0},
                {"customer": "acme", "profiles": 10**9},
            ):
                refused = await make(**wrong)
                assert refused.status_code == 400
                assert "profiles" in refused.json()["detail"]
            made = await make(customer="acme", profiles=3)
            assert made.json()["key"]["profiles"] == 3
            assert [key.profiles for key in await app.keys.list()] == [3, None]
            key = made.json()["text"]
            found = [(await submit(hub, key, f"task-{n}")).status_code for n in range(5)]
            assert found == [201, 201, 201, 400, 400]
            problem = (await submit(hub, key, "task-9")).json()
            assert problem["type"].endswith("/too-many-profiles")
