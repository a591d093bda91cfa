from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace import App
from headrace.client.api.tasks import TaskDoc
from headrace.engine import InsertAnswer
from headrace.engines.memory import MemoryEngine
from headrace.errors import NotOpen, Unavailable
from headrace.runtime.store_clock import StoreClock
from headrace.testing import FakeClock
from tests.support.apps import Sums
from tests.support.until import until


async def test_a_session_goes_by_the_stores_time_from_its_opening_on(monkeypatch: pytest.MonkeyPatch) -> None:
    local, ahead, asked = FakeClock(), timedelta(hours=-1), list[datetime]()

    async def time(engine: MemoryEngine) -> datetime | None:
        asked.append(local.now())
        return local.now() + ahead

    monkeypatch.setattr(MemoryEngine, "time", time)
    sums = Sums()
    with sums.app.override(url="memory://", clock=StoreClock(local)):
        async with sums.app:
            assert sums.app.host.clock.now() == local.now() + ahead
            job = await sums.add.options(delay=60).submit(1)
            stored = await job.refresh()
            assert stored.available_at == local.now() + ahead + timedelta(seconds=60)
            # A session that does not beat measures again with a write, if that is half a minute old.
            before, ahead = len(asked), timedelta(hours=1)
            local.advance(29)
            await sums.add.submit(1)
            assert len(asked) == before
            local.advance(2)
            stored = await (await sums.add.submit(1)).refresh()
            assert (len(asked), stored.created_at) == (before + 1, local.now() + ahead)
            local.advance(31)
            await job.cancel()
            assert len(asked) == before + 2


async def test_a_store_that_cannot_say_its_time_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def time(engine: MemoryEngine) -> datetime | None:
        raise Unavailable("away")

    monkeypatch.setattr(MemoryEngine, "time", time)
    app = App("memory://")
    with pytest.raises(Unavailable):
        await app.__aenter__()
    with pytest.raises(NotOpen):
        _ = app.session


async def test_what_was_found_is_believed_for_a_while() -> None:
    clock = FakeClock()
    async with App("memory://", clock=clock) as app:
        session = app.session
        assert await session.find_task("later") is None
        await session.engine.documents.put_setting("task:later", '{"name":"later"}', 0)
        assert await session.find_task("later") == TaskDoc(name="later")
        (setting,) = await session.engine.documents.settings("task:later")
        await session.engine.documents.put_setting("task:later", '{"name":"later","priority":5}', setting.rev)
        assert await session.find_task("later") == TaskDoc(name="later")
        clock.advance(11)
        assert await session.find_task("later") == TaskDoc(name="later", priority=5)


async def test_closing_writes_what_is_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = Sums()
    async with sums.app:
        session = sums.app.session
        lane, insert = session.writer.inserts._plain, session.engine.jobs.insert
        writing, may_write = asyncio.Event(), asyncio.Event()

        async def slow(*args: Any, **options: Any) -> list[InsertAnswer]:
            writing.set()
            await may_write.wait()
            return await insert(*args, **options)

        monkeypatch.setattr(session.engine.jobs, "insert", slow)
        submits = [asyncio.create_task(sums.add.submit(0))]
        await writing.wait()
        submits += [asyncio.create_task(sums.add.submit(i)) for i in range(1, 10)]
        await until(lambda: lane.waiting == 9)  # behind the first

        async def let_write() -> None:
            await until(lambda: lane._closed)
            assert not any(submit.done() for submit in submits)
            may_write.set()

        letting = asyncio.create_task(let_write())
    await letting
    assert lane.waiting == 0
    assert all(submit.done() for submit in submits), "everybody has an answer when it is closed"
    handles = [await submit for submit in submits]
    with pytest.raises(NotOpen):
        await session.watcher.ended(handles[0].id)
    async with sums.app as app:
        assert (await app.session.engine.records.ledger()).accepted == 10
        assert [(await app.jobs.get(handle.id)).payload["a"] for handle in handles] == [*range(10)]
