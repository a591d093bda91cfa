"""One list of alerts, for the doctor and for every screen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, Retry
from headrace.client.submission.by_name import draft_with_warnings
from headrace.core.stats.alerts.alert import Kind
from headrace.engine import WorkerInfo
from tests.support.apps import ENGINES, url_of


@pytest.fixture(params=ENGINES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    made = App(url_of(request.param, tmp_path))

    @made.task(retry=Retry(2, backoff=(0.0,)))
    async def flaky(ctx: Context, n: int) -> int:
        if ctx.attempt < 3:
            raise ValueError(f"customer {n}")
        return n

    @made.task(retry=Retry(0))
    async def broken() -> None:
        raise LookupError("nothing there")

    async with made:
        yield made


async def join(app: App, *tasks: str, **info: Any) -> None:
    """A worker that has just registered."""
    now = app.host.clock.now()
    fields: dict[str, Any] = {"id": app.host.new_id(), "host": "mill", "pid": 1, "started_at": now, "concurrency": 1}
    await app.session.engine.workers.register(WorkerInfo(**fields | {"tasks": tasks} | info), now)


async def submit(app: App, task: str, **options: Any) -> None:
    """A job of a task that nobody has described."""
    draft, _ = await draft_with_warnings(app, task, {}, options)
    await draft.submit()


async def test_errors_of_jobs_that_succeeded_later_are_found_with_one_of_the_jobs(app: App) -> None:
    jobs = await app.tasks["flaky"].map([(n,) for n in range(5)])
    await app.worker(burst=True).run()
    assert {await job.result() for job in jobs} == {0, 1, 2, 3, 4}
    assert await app.jobs.failures() == []
    [error] = await app.stats.errors(task="flaky")
    assert (error.type, error.attempts, error.task) == ("ValueError", 10, "flaky")
    assert error.place is not None
    assert error.place.endswith("test_alerts.py:flaky")
    assert error.example in {job.id for job in jobs}
    [alert] = [one for one in await app.stats.alerts() if one.subject == "flaky"]
    assert (alert.kind, alert.level) == (Kind.FAILING_TASK, "fail")
    assert "10 attempts failed within the hour, 67% of all" in alert.message
    assert await app.stats.errors(task="broken") == []


async def test_dead_letters_that_grow_are_an_alert_and_the_doctor_has_the_same(app: App) -> None:
    await app.tasks["broken"].map([()] * 6)
    await app.worker(burst=True).run()
    found = await app.stats.alerts()
    assert {one.kind for one in found} == {Kind.FAILING_TASK, Kind.DEAD_LETTERS}
    assert [one.level for one in found] == ["fail", "warn"], "failures come first"
    wrong = [check for check in await app.store.doctor(store=False) if check.level != "ok"]
    assert [(one.level, one.message, one.remedy) for one in wrong] == [
        (one.level, one.message, one.remedy) for one in found
    ]


async def test_jobs_that_have_ended_make_no_task_unserved(app: App) -> None:
    await join(app, "old")
    await app.submit("old", {})
    engine = app.session.engine
    assert len([one async for one in app.jobs.where(task="old").cancel()]) == 1
    for row in await engine.workers.list():
        await engine.workers.retire(row.info.id)
    await join(app, "flaky", "broken")
    assert await app.stats.alerts() == []
    await submit(app, "old", delay=3600)
    [later] = await app.stats.alerts()
    assert (later.kind, later.level, later.subject) == (Kind.UNSERVED_TASK, "warn", "old")
    await submit(app, "new")
    assert [(one.level, one.subject) for one in await app.stats.alerts()] == [("fail", "new"), ("warn", "old")]


async def test_a_task_that_only_a_worker_behind_a_hub_has_is_served_and_listed(app: App) -> None:
    await join(app, "shout", name="far", host="")
    await app.submit("shout", {})  # and nothing is warned of
    assert await app.stats.alerts() == []
    listed = {one.name: one for one in await app.tasks.list()}
    assert {*listed} == {"broken", "flaky", "shout"}
    assert (listed["shout"].here, listed["shout"].schema) == (False, {})


async def test_a_task_that_only_jobs_name_is_listed_while_they_live(app: App) -> None:
    await submit(app, "lonely")
    assert "lonely" in {one.name for one in await app.tasks.list()}
    assert len([one async for one in app.jobs.where(task="lonely").cancel()]) == 1
    assert "lonely" not in {one.name for one in await app.tasks.list()}
