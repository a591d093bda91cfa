"""A worker notes the depth of each queue, and the page of the queue draws it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import App
from headrace.core.stats.depth import depth_series
from headrace.core.stats.rollup import Step
from headrace.dashboard import dashboard
from tests.support.apps import url_of
from tests.support.until import until


@pytest.mark.every_engine
@pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres"])
async def test_the_depth_of_a_queue_is_noted_by_whoever_works(engine: str, tmp_path: Path) -> None:
    app = App(url_of(engine, tmp_path))

    @app.task(queue="mail")
    async def send() -> None: ...

    @app.task(queue="other")
    async def other() -> None: ...

    async with app:
        await send.map([()] * 3)
        async with app.worker(queues=["other"]):

            async def noted() -> bool:
                _, depths = depth_series(await app.stats.depths(), Step.MINUTE)
                return set(depths.get("mail", {}).values()) == {3.0}

            await until(noted)
        assert all(row.task != "headrace.depth" for row in await app.stats.rollups(3600.0))
        assert dashboard(app, access=lambda _: "read").routes()
