"""Surefire's page about the lifecycle of a run, played over HTTP in its words: retries, reruns, deadlines, nodes."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import Context, Tasks
from headrace.maintenance.planner import Planner
from tests.coming_from.stage import Stage, staged
from tests.support.apps import url_of
from tests.support.until import until

pytestmark = pytest.mark.parametrize("engine", ["sqlite", "postgres"])

SHOWN = {"Pending", "Running", "Completed", "Retrying", "Cancelled", "Dead letter"}

DEFAULT = {"max_retries": 3, "backoff": "fixed", "initial": 5}
"""Its policy where a job sets nothing but a number of retries: five seconds, with jitter."""
FLAKY = {"max_retries": 5, "backoff": "exponential", "initial": 2, "cap": 300, "jitter": True}
"""The policy of its example."""


class Jobs:
    """The jobs of the page, which do as the test says."""

    def __init__(self) -> None:
        self.tasks, self.go, self.fails = Tasks(), asyncio.Event(), True

        @self.tasks.task
        async def flaky() -> str:
            if self.fails:
                raise ConnectionError("no answer")
            return "at last"

        @self.tasks.task(name="import")
        async def load(ctx: Context, day: str) -> str:
            ctx.progress(1)  # so that its start is stored at once
            await self.go.wait()
            return f"imported {day}"


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.every_engine
async def test_every_status_of_a_run(engine: str, tmp_path: Path) -> None:
    jobs = Jobs()
    async with staged(url_of(engine, tmp_path), "surefire", tasks=jobs.tasks) as stage:
        later = moment((await stage.job(await stage.submit(task="flaky")))["created_at"]) + timedelta(hours=1)
        [first] = await stage.found("pending")
        run = await stage.submit(task="import", payload={"day": "2026-01-31"})
        held = await stage.submit(task="flaky", not_before=later.isoformat())
        assert await stage.found("Pending") == {first, run, held}, "also one whose NotBefore is yet to come"
        assert (await stage.act(held, "cancel"))["status"] == "Cancelled"

        async with stage.hub.app.worker():

            async def runs() -> bool:
                return await stage.status(run) == "Running" and await stage.status(first) == "Retrying"

            await until(runs)
            jobs.go.set()
            assert await stage.get(f"/api/jobs/{run}/result", wait=20) == "imported 2026-01-31"
        assert await stage.found("Completed") == {run}

        while await stage.status(first) == "Retrying":
            await stage.jumps(300)
            await stage.runs()
        assert (await stage.job(first))["reason"] == "retries_exhausted"
        assert await stage.found("Dead Letter") == {first}
        assert await stage.found("cancelled") == {held}
        await asyncio.gather(*map(stage.status, (run, held, first)))
        assert stage.seen >= SHOWN


async def delays(stage: Stage, id: str) -> list[float]:
    """How long each retry of a run was put off."""
    tried = await stage.attempts(id)
    return [(moment(one["retry_at"]) - moment(one["finished_at"])).total_seconds() for one in tried[:-1]]


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("policy", "longest"), [(DEFAULT, [5.0, 5.0, 5.0]), (FLAKY, [2.0, 4.0, 8.0, 16.0, 32.0])], ids=["default", "flaky"]
)
async def test_a_run_is_retried_with_backoff_and_jitter_and_ends_a_dead_letter(
    policy: dict[str, Any], longest: list[float], engine: str, tmp_path: Path
) -> None:
    async with staged(url_of(engine, tmp_path), "surefire", tasks=Jobs().tasks) as stage:
        id = await stage.submit(task="flaky", retry=policy)
        for delay in longest:
            await stage.runs()
            assert await stage.status(id) == "Retrying"
            await stage.jumps(delay / 2 - 0.1)  # the jitter leaves half of it at least
            assert await stage.status(id) == "Retrying"
            await stage.jumps(delay / 2 + 0.1)
            assert await stage.status(id) == "Pending"
        await stage.runs()
        assert await stage.status(id) == "Dead letter"
        waited = await delays(stage, id)
        assert len(waited) == len(longest)
        assert all(most / 2 <= delay <= most for delay, most in zip(waited, longest, strict=True))
        assert any(delay < most for delay, most in zip(waited, longest, strict=True))


@pytest.mark.every_engine
async def test_a_rerun_is_an_independent_run(engine: str, tmp_path: Path) -> None:
    jobs = Jobs()
    async with staged(url_of(engine, tmp_path), "surefire", tasks=jobs.tasks) as stage:
        id = await stage.submit(task="flaky", retry={"max_retries": 0})
        await stage.runs()
        assert await stage.status(id) == "Dead letter"
        jobs.fails = False
        again = await stage.act(id, "rerun")
        assert again["id"] != id
        await stage.runs()
        run = await stage.job(again["id"])
        assert (run["status"], run["task"], run["rerun_of"], run["attempt"]) == ("Completed", "flaky", id, 1)
        assert run.get("parent") is run.get("root") is None, "it is in no tree"
        assert await stage.status(id) == "Dead letter"


@pytest.mark.every_engine
async def test_a_trigger_is_rejected_while_a_run_holds_its_deduplication_id(engine: str, tmp_path: Path) -> None:
    jobs = Jobs()
    body = {"task": "flaky", "dedup": "import-2026-01-31", "on_duplicate": "raise", "retry": DEFAULT}
    async with staged(url_of(engine, tmp_path), "surefire", tasks=jobs.tasks) as stage:

        async def is_rejected() -> bool:
            answer = await stage.post("/api/jobs", body)
            assert answer.status_code in (201, 409), answer.text
            return answer.status_code == 409

        async def ended(word: str, id: str) -> None:
            assert await stage.status(id) == word
            assert not await is_rejected(), f"{word} frees it"
            [live] = await stage.found("Pending")
            await stage.act(live, "cancel")

        id = await stage.submit(**body)
        assert await is_rejected(), "Pending"
        await stage.runs()
        assert await stage.status(id) == "Retrying"
        assert await is_rejected()
        await stage.act(id, "cancel")
        await ended("Cancelled", id)

        id = await stage.submit(**body | {"retry": {"max_retries": 0}})
        await stage.runs()
        await ended("Dead letter", id)
        jobs.fails = False
        id = await stage.submit(**body)
        await stage.runs()
        await ended("Completed", id)


@pytest.mark.every_engine
async def test_each_fire_of_a_cron_job_makes_one_run(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "surefire", tasks=Jobs().tasks) as stage:
        body = {"task": "flaky", "rule": {"kind": "every", "seconds": 60}}
        answer = await stage.hub.client.put("/api/schedules/nightly", json=body)
        assert answer.is_success, answer.text
        app = stage.hub.app
        nodes = [
            Planner(app.session.engine, app.session.writer, app.host, app.host.new_id()) for _ in range(2)
        ]  # two nodes of which each takes itself for the one that plans
        for fires in (1, 2, 3):
            stage.clock.advance(60)
            await asyncio.gather(*(node.tick() for node in nodes))
            assert len(await stage.found("Pending")) == fires


@pytest.mark.every_engine
async def test_a_run_that_has_not_started_by_its_deadline_is_cancelled(engine: str, tmp_path: Path) -> None:
    async with staged(url_of(engine, tmp_path), "surefire") as stage:
        now = stage.clock.now()
        window = {"not_before": now.isoformat(), "not_after": (now + timedelta(minutes=30)).isoformat()}
        id = await stage.submit(task="report", payload={"week": 5}, **window)
        await stage.jumps(28 * 60)
        await stage.changes_after(id, 0, "not_after")
        run = await stage.job(id)
        assert (run["status"], run["reason"]) == ("Cancelled", "expired")


@pytest.mark.every_engine
async def test_the_runs_of_a_node_that_is_silent_for_two_minutes_are_recovered(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BEAT", "30")
    monkeypatch.setenv("HEADRACE_LEASE", "120")
    url = url_of(engine, tmp_path)
    async with staged(url, "surefire", heartbeat=30, worker_lease=120.0) as stage:
        node, other = [await stage.worker(name, tasks=["report"]) for name in ("node-1", "node-2")]
        id = await stage.submit(task="report", retry=DEFAULT)
        await node.given()
        await node.says("start_job")
        await stage.passes(90)
        assert await stage.status(id) == "Running", "it beats every 30 s"
        node.lives = False
        await stage.passes(90)
        assert await stage.status(id) == "Running"
        await stage.passes(90)
        assert [one["outcome"] for one in await stage.attempts(id)] == ["lost"]
        assert await stage.status(id) in ("Retrying", "Pending")
        await stage.passes(5)
        assert await other.given() == id
        await other.says("complete_job")
        assert await stage.status(id) == "Completed"
        await stage.passes(120)
        alive = [one["name"] for one in (await stage.get("/api/workers"))["items"] if one["alive"]]
        assert alive == ["node-2"], "nodes that are inactive go"
