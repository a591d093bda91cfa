"""What a child takes from the job whose handler submits it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace import App
from tests.support.apps import url_of


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    app = App(url_of("sqlite", tmp_path))

    @app.task
    async def plain() -> None: ...

    @app.task(priority="low")
    async def named() -> None: ...

    @app.task
    async def parent(how: str) -> str:
        match how:
            case "plain":
                handle = await plain.submit()
            case "called":
                handle = await plain.options(priority="normal").submit()
            case "of the task":
                handle = await named.submit()
            case "several":
                _, handle = await app.submit_many([plain.draft(), plain.draft()])
            case _:
                handle = await app.submit(how, {})
        return str(handle.id)

    async with app:
        yield app


async def child_of(app: App, how: str, priority: int) -> int:
    handle = await app.tasks["parent"].options(priority=priority).submit(how)
    return (await app.jobs.get(await handle.result(timeout=45))).priority


async def test_it_has_the_priority_of_its_parent_unless_one_is_named(app: App) -> None:
    async with app.worker():
        assert await child_of(app, "plain", 77) == 77
        assert await child_of(app, "several", 78) == 78
        assert await child_of(app, "plain", 50) == 50
        assert await child_of(app, "called", 77) == 50
        assert await child_of(app, "of the task", 77) == 15
    assert (await (await app.tasks["plain"].submit()).refresh()).priority == 50, (
        "outside a handler nothing is inherited"
    )


async def test_so_does_a_child_by_name_of_a_task_that_only_workers_know(app: App) -> None:
    other = App(app.settings.url)

    @other.task
    async def elsewhere() -> None: ...

    @other.task(priority="normal")
    async def named_elsewhere() -> None: ...

    async with other:
        await other.tasks.announce()
    async with app.worker():
        assert await child_of(app, "elsewhere", 77) == 77
        assert await child_of(app, "named_elsewhere", 77) == 50
    shown = {one.name: one.priority for one in await app.tasks.list()}
    assert (shown["elsewhere"], shown["named"]) == (50, 15)


async def test_defaults_of_the_app_name_one_too() -> None:
    app = App("memory://", defaults={"priority": "high"})

    @app.task
    async def child() -> None: ...

    @app.task(priority=20)
    async def parent() -> str:
        return str((await child.submit()).id)

    async with app, app.worker():
        assert (await app.jobs.get(await parent.run())).priority == 80
