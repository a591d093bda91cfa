"""Retention per task as a program asks for it: stored with the job, and obeyed by whoever prunes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Every
from headrace.core.lifecycle.retention import Kept
from headrace.errors import ConfigError
from headrace.testing.clock import FakeClock
from tests.support.apps import ENGINES, url_of

HOUR = Kept(completed=3600, failed=3600, cancelled=3600)


@pytest.mark.parametrize("engine", [one for one in ENGINES if one != "memory"])
@pytest.mark.every_engine
async def test_a_pruner_that_does_not_know_the_task_obeys(engine: str, tmp_path: Path) -> None:
    clock, url = FakeClock(datetime.now(UTC)), url_of(engine, tmp_path)
    app, other = App(url, clock=clock), App(url, clock=clock)

    @app.task(retention=3600)
    async def brief(n: int) -> int:
        return n

    @app.task(retention={"cancelled": timedelta(days=365)})
    async def long(n: int) -> int:
        return n

    @app.task
    async def plain(n: int) -> int:
        return n

    async with app:
        jobs = [await task.submit(1) for task in (brief, long, plain)]
        jobs.append(await plain.options(retention=timedelta(minutes=5)).submit(2))
        await app.tasks.announce()
    async with other:
        named = await other.submit("brief", {"n": 2})
        assert (await named.refresh()).retention == HOUR, "as the store knows it of the task"
        rerun = [await other.jobs.handle((await handle.cancel()).id).rerun() for handle in (named,)]
        assert (await rerun[0].refresh()).retention == HOUR
        for handle in jobs:
            await other.jobs.handle(handle.id).cancel()
        left = []
        for span in (
            timedelta(minutes=4),
            timedelta(minutes=2),
            timedelta(hours=1),
            timedelta(days=31),
            timedelta(days=334),
        ):
            clock.advance(span.total_seconds())
            await other.store.prune()
            left.append(
                [job is not None for job in await other.jobs.get_many([handle.id for handle in (*jobs, named)])]
            )
    assert left == [
        [True, True, True, True, True],
        [True, True, True, False, True],
        [False, True, True, False, False],
        [False, True, False, False, False],
        [False, False, False, False, False],
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (60, Kept(completed=60, failed=60, cancelled=60)),
        (timedelta(minutes=1), Kept(completed=60, failed=60, cancelled=60)),
        ({"failed": 5}, Kept(failed=5)),
        ({}, Kept()),
    ],
)
async def test_how_it_is_said(given: Any, kept: Kept) -> None:
    app = App("memory://", defaults={"retention": given})

    @app.task
    async def work() -> None: ...

    @app.task(retention=1)
    async def own() -> None: ...

    async with app:
        assert (await (await work.submit()).refresh()).retention == kept
        assert (await (await own.submit()).refresh()).retention == Kept(completed=1, failed=1, cancelled=1)
        assert {task.name: task.retention for task in await app.tasks.list()} == {
            "work": kept,
            "own": Kept(completed=1, failed=1, cancelled=1),
        }
        await app.schedules.set("often", Every(hours=1), own.draft())
        assert (await (await app.schedules.trigger("often")).refresh()).retention is not None


@pytest.mark.parametrize("wrong", [-1, "1h", None, {"done": 1}, {"failed": -1}, {"completed": None}, float("nan")])
def test_what_is_no_retention_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="retention"):
        App("memory://").task(retention=wrong)
