from __future__ import annotations

import pytest

from headrace import App
from headrace.errors import NotOpen
from headrace.registry import TaskDoc
from headrace.testing import FakeClock
from tests.support.apps import Sums


async def test_what_was_found_is_believed_for_a_while() -> None:
    clock = FakeClock()
    async with App("memory://", clock=clock) as app:
        session = app.session
        assert await session.find_task("later") is None
        await session.engine.put_setting("task:later", '{"name":"later"}', 0)
        assert await session.find_task("later") == TaskDoc(name="later")
        (setting,) = await session.engine.settings("task:later")
        await session.engine.put_setting("task:later", '{"name":"later","priority":5}', setting.rev)
        assert await session.find_task("later") == TaskDoc(name="later")
        clock.advance(11)
        assert await session.find_task("later") == TaskDoc(name="later", priority=5)


async def test_closing_writes_what_is_waiting() -> None:
    sums = Sums()
    async with sums.app:
        handles = await sums.add.map([(i,) for i in range(10)])
        session = sums.app.session
    assert len(handles) == 10
    with pytest.raises(NotOpen):
        await session.watcher.ended(handles[0].id)
