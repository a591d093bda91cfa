"""The store is read when somebody asks: seldom, once for all, and for nobody's harm."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from headrace import App
from headrace.client.api.stats import StoreSnapshot
from headrace.contrib.prometheus.store import Figures, StoreReader
from headrace.core.stats.metrics import Metrics
from headrace.errors import Unavailable
from headrace.testing import FakeClock
from tests.support.until import until

EMPTY = StoreSnapshot(
    counts=(),
    paused=frozenset(),
    named=frozenset(),
    alive=3,
    silent=0,
    metrics=Metrics(queue_depth=0, windows={}),
    schedules=(),
)


class Desk:
    """A reader of an open App on a fake clock, and a store that answers as it is told to."""

    def __init__(self, app: App, clock: FakeClock) -> None:
        self.app, self.clock = app, clock
        self.reads, self.takes = 0, 0.0
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.reader = StoreReader(app, every=5.0, patience=0.01)

    def told(self) -> tuple[bool | None, Figures | None]:
        return self.reader.up, self.reader.figures

    async def read(self) -> StoreSnapshot:
        self.reads += 1
        await self.open.wait()
        self.clock.advance(self.takes)
        if self.error is not None:
            raise self.error
        return EMPTY


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    app, clock = App("memory://"), FakeClock()
    with app.override(clock=clock):
        async with app:
            made = Desk(app, clock)
            monkeypatch.setattr(app.stats, "snapshot", made.read)
            yield made
            made.open.set()


async def test_those_who_ask_at_once_share_a_read(desk: Desk) -> None:
    desk.reader = StoreReader(desk.app, every=5.0, patience=60.0)
    await asyncio.gather(*(desk.reader.read() for _ in range(5)))
    assert desk.reads == 1
    assert desk.reader.figures is not None
    assert desk.reader.up is True


async def test_it_is_read_at_most_every_few_seconds(desk: Desk) -> None:
    for step, reads in ((0.0, 1), (4.9, 1), (0.2, 2), (0.0, 2)):
        desk.clock.advance(step)
        await desk.reader.read()
        await until(lambda: desk.reader.figures)
        assert desk.reads == reads
    desk.clock.advance(3.0)
    assert desk.reader.age == pytest.approx(3.0)


async def test_what_takes_long_is_done_seldom_by_all_workers_together(desk: Desk) -> None:
    desk.takes = 2.0
    await desk.reader.read()
    await until(lambda: desk.reader.figures)
    figures = desk.reader.figures
    assert figures is not None
    assert figures.took == pytest.approx(2.0)
    desk.clock.advance(119.0)  # three workers are alive: 20 times 2 s, for each
    await desk.reader.read()
    assert desk.reads == 1
    desk.clock.advance(2.0)
    await desk.reader.read()
    assert desk.reads == 2


async def test_a_store_that_is_away_is_told_and_tried_again(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    before = desk.reader.up
    assert before is None  # nobody knows
    desk.error = Unavailable("no answer")
    with caplog.at_level(logging.WARNING, "headrace.metrics"):
        for _ in range(3):
            await desk.reader.read()
            await until(lambda: desk.reader.up is False)
            desk.clock.advance(6.0)
    assert desk.reads == 3
    assert [record.getMessage() for record in caplog.records] == ["metrics: the store cannot be read: no answer"]
    desk.error = None
    await desk.reader.read()
    await until(lambda: desk.reader.up)
    assert desk.reader.figures is not None


async def test_a_read_that_does_not_come_back_keeps_nobody_and_counts_as_failed(desk: Desk) -> None:
    await desk.reader.read()
    await until(lambda: desk.reader.up)
    desk.open.clear()
    desk.clock.advance(6.0)
    await desk.reader.read()
    assert desk.reads == 2
    assert desk.reader.figures is not None  # those of before are told, with their age
    desk.clock.advance(31.0)
    await desk.reader.read()
    assert desk.reads == 2  # it is still on its way
    assert desk.told() == (False, None)
    desk.open.set()
    await until(lambda: desk.reader.up)


async def test_threads_wait_for_the_loop_of_the_app(desk: Desk) -> None:
    desk.reader = StoreReader(desk.app, every=5.0, patience=60.0)
    await asyncio.to_thread(desk.reader.ask)
    assert desk.reads == 1
    assert desk.reader.up is True
    await asyncio.to_thread(desk.reader.ask)
    assert desk.reads == 1


async def test_a_loop_that_stands_still_keeps_no_thread(desk: Desk) -> None:
    asking = threading.Thread(target=desk.reader.ask, daemon=True)
    asking.start()
    asking.join(60)  # on the loop, which does not move meanwhile
    assert not asking.is_alive()
    assert desk.reads == 0
    desk.clock.advance(31.0)
    assert desk.reader.up is False


async def test_on_a_loop_nothing_is_waited_for(desk: Desk) -> None:
    desk.reader.ask()
    assert desk.reads == 0
    await until(lambda: desk.reader.up)


def test_an_app_that_is_open_nowhere_has_no_store_to_read() -> None:
    reader = StoreReader(App("memory://"), every=5.0, patience=0.01)
    reader.ask()
    assert reader.up is False
