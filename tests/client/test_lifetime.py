from __future__ import annotations

import asyncio
import io
import logging
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, Status
from headrace.client import lifetime
from headrace.engine import Engine
from headrace.engines.connect import connect
from headrace.errors import ConfigError, HeadraceError, NotOpen, SyncInAsync
from headrace.runtime.store_clock import StoreClock
from headrace.testing import FakeClock
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.hostile import WICKED, raw_in

pytestmark = pytest.mark.every_engine


def test_constructing_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_BEAT", "nonsense")
    app = App("sqlite:///jobs.db")
    assert os.listdir(tmp_path) == []
    assert "jobs.db" in repr(app)
    with pytest.raises(ConfigError, match="HEADRACE_BEAT"):
        _ = app.settings


@pytest.mark.parametrize("kind", ENGINES)
async def test_entering_is_counted(kind: str, tmp_path: Path) -> None:
    sums = Sums(url_of(kind, tmp_path))
    app = sums.app
    async with app:
        engine = app.session.engine
        async with app:
            assert app.session.engine is engine
        await sums.add.submit(1)
    with pytest.raises(NotOpen, match="not open here"):
        await sums.add.submit(1)
    async with app:
        assert (await app.stats.counts()).ledger.accepted == 1


@pytest.mark.parametrize("kind", ENGINES)
def test_an_app_is_entered_again_on_another_loop(kind: str, tmp_path: Path) -> None:
    sums = Sums(url_of(kind, tmp_path))

    async def submit() -> int:
        async with sums.app:
            await sums.add.submit(1)
            return (await sums.app.stats.counts()).ledger.accepted

    assert [asyncio.run(submit()) for _ in range(3)] == [1, 2, 3]


async def test_many_may_enter_at_once() -> None:
    sums = Sums()
    sessions: set[int] = set()
    gate = asyncio.Event()

    async def enter() -> None:
        async with sums.app:
            sessions.add(id(sums.app.session))
            await gate.wait()
            await sums.add.submit(1)

    entered = [asyncio.create_task(enter()) for _ in range(20)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*entered)
    assert len(sessions) == 1
    with pytest.raises(NotOpen):
        _ = sums.app.session.engine


async def test_who_enters_while_the_last_leaves_finds_it_open() -> None:
    sums = Sums()

    async def visit() -> None:
        async with sums.app:
            await sums.add.submit(1)

    for _ in range(20):
        await asyncio.gather(*(visit() for _ in range(5)))
    async with sums.app:
        assert (await sums.app.stats.counts()).ledger.accepted == 100


async def test_a_store_that_cannot_be_opened_leaves_the_app_closed(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/no/such/folder/jobs.db")
    for _ in range(2):
        with pytest.raises(Exception, match="folder"):
            await app.__aenter__()
    with pytest.raises(NotOpen):
        _ = app.session.engine


def test_outside_a_loop_there_is_nothing_open() -> None:
    with pytest.raises(NotOpen, match="async with app"):
        _ = App("memory://").session.engine


async def test_several_apps_do_not_know_each_other() -> None:
    one, two = Sums(), Sums()
    async with one.app, two.app:
        await one.add.submit(1)
        assert (await two.app.stats.counts()).ledger.accepted == 0
        with pytest.raises(ConfigError, match="another App"):
            await two.app.submit_many([one.add.draft(1)])


async def test_override_lends_another_store_and_clock(tmp_path: Path) -> None:
    sums, clock = Sums(f"sqlite:///{tmp_path}/jobs.db"), FakeClock()
    with sums.app.override(url="memory://", clock=clock) as app:
        assert (app.settings.url, app.host.clock) == ("memory://", clock)
        async with app:
            job = (await sums.add.submit(1)).last
            assert job is not None
            assert job.created_at == clock.now()
            with pytest.raises(ConfigError, match="open"), app.override(url="memory://"):
                pass
        with app.override(clock=FakeClock()):
            assert app.settings.url == "memory://"
    assert sums.app.settings.url.startswith("sqlite")
    assert isinstance(sums.app.host.clock, StoreClock)
    assert os.listdir(tmp_path) == []


async def test_every_override_has_a_store_of_its_own() -> None:
    sums = Sums()
    for _ in range(2):
        with sums.app.override(url="memory://"):
            async with sums.app:
                await sums.add.submit(1)
                assert (await sums.app.stats.counts()).ledger.accepted == 1


async def test_settings_reach_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_LEASE", "45")
    async with App("memory://") as app:
        assert app.session.engine.rules.lease == 45.0


@pytest.mark.parametrize("arguments", [{"imports": "module"}])
def test_bad_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        App(**arguments)


def test_threads_that_open_it_at_once_share_one_store(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = Sums()
    both = threading.Barrier(2, timeout=40)

    def meet(*args: Any, **kwargs: Any) -> Engine:
        both.wait()
        return connect(*args, **kwargs)

    monkeypatch.setattr(lifetime, "connect", meet)

    async def submit() -> None:
        async with sums.app:
            await sums.add.submit(1)

    threads = [threading.Thread(target=lambda: asyncio.run(submit())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)

    async def count() -> int:
        async with sums.app:
            return (await sums.app.stats.counts()).ledger.accepted

    assert asyncio.run(count()) == 2


async def test_a_store_that_cannot_be_opened_is_blamed_on_who_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", "postgresql://anna:secret@db/jobs")
    with pytest.raises(HeadraceError) as raised:
        async with App("sqlite:////no/such/folder/jobs.db"):
            pass
    lost = "the environment variable HEADRACE_URL (postgresql://anna:***@db/jobs)"
    assert raised.value.__notes__ == [f"the url comes from App(...), which wins over {lost}"]
    with pytest.raises(ConfigError) as refused:
        App("mysql://x")._new_engine()
    assert refused.value.__notes__ == [f"the url comes from App(...), which wins over {lost}"]


async def test_asking_for_a_store_makes_none(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    assert not await app.store.exists()
    assert os.listdir(tmp_path) == []
    async with app:
        assert await app.store.exists()


@pytest.mark.parametrize("kind", ENGINES)
async def test_what_an_open_app_logs_is_printable(kind: str, tmp_path: Path) -> None:
    sums, told = Sums(url_of(kind, tmp_path)), io.StringIO()
    handler, logger = logging.StreamHandler(told), logging.getLogger("headrace.requirements")
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    try:
        async with sums.app:  # with neither a worker nor a hub
            await sums.add.options(requires={WICKED: 1}).submit(1)
    finally:
        logger.removeHandler(handler)
    [line] = told.getvalue().splitlines()
    assert line.startswith("WARNING no worker is alive, and jobs of 'add' require ")
    assert list(raw_in(line)) == []


def test_streams_logs_watches_and_feeds_are_read_without_a_loop(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def count(ctx: Context, to: int) -> AsyncIterator[int]:
        for number in range(to):
            ctx.progress(100 * number / to, f"at {number}")
            yield number

    async def work() -> None:
        async with app.worker(burst=True) as worker:
            await worker.run(signals=False)

    feed = app.jobs.feed(task="count")
    app.wait(feed.__aenter__())
    job = count.submit_sync(3)
    for changed in app.iterate(feed):
        assert changed.jobs[0].id == job.id
        break
    app.wait(work())
    assert list(app.iterate(app.jobs.handle(job.id).stream())) == [0, 1, 2]
    assert [one.status for one in app.iterate(job.watch())] == [Status.COMPLETED]
    assert list(app.iterate(job.logs())) == []


def test_what_is_left_early_is_closed() -> None:
    app, closed = App("memory://"), list[bool]()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    for number in app.iterate(endless()):
        assert number == 1
        break
    assert closed == [True]


async def test_nothing_is_read_so_on_a_loop() -> None:
    with pytest.raises(SyncInAsync):
        next(App("memory://").iterate(App("memory://").jobs.feed()))
