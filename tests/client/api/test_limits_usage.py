"""Who holds slots, and what is left of rates."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace import App, Context
from headrace.core.limits.rate import Rate
from tests.support.apps import ENGINES, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("kind", ENGINES)
async def test_held_jobs_are_counted_by_queue_task_and_key_and_rates_by_what_is_left(kind: str, tmp_path: Path) -> None:
    app, go = App(url_of(kind, tmp_path)), asyncio.Event()
    app.rate("few", Rate(2, per=3600, kind="bucket"))
    app.rate("own", Rate(2, per=3600, keyed=True))

    @app.task(queue="shop", concurrency_key="who:{who}", rates=["few", "own"])
    async def charge(who: int) -> None:
        await go.wait()

    async with app, app.worker(concurrency=5, grace=5):
        handles = await charge.map([(1,), (1,), (2,)])
        await until(lambda: _holds(app, 2))
        found = await app.limits.usage()
        assert (found.queues, found.tasks) == ({"shop": 2}, {"charge": 2})
        assert found.by_key == {"charge": {"who:1": 1, "who:2": 1}}, "keys take turns"
        assert set(found.rates) == {"few"}, "what each key has by itself is not one number"
        assert found.rates["few"].left == 0
        assert found.rates["few"].next is not None
        go.set()
        await app.jobs.handle(handles[1].id).cancel()


async def _holds(app: App, number: int) -> bool:
    return (await app.limits.usage()).tasks.get("charge") == number


@pytest.mark.parametrize("kind", ENGINES)
async def test_the_steps_of_a_job_are_told_in_their_order(kind: str, tmp_path: Path) -> None:
    app = App(url_of(kind, tmp_path))

    @app.task
    async def order(ctx: Context) -> None:
        await ctx.step("pay", _said, {"cents": 5})
        await ctx.step("ship", _said, None)

    async with app, app.worker():
        handle = await order.submit()
        await handle.result(timeout=30)
        told = [(one.name, one.attempt, one.value) for one in await app.jobs.steps(handle.id)]
    assert told == [("pay", 1, {"cents": 5}), ("ship", 1, None)]


async def _said(value: object) -> object:
    return value
