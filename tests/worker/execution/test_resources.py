"""Resources: open before the first claim, closed after the last job, in the same task and in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from headrace import App, Context, HeadraceError, JobFailed, Retry, Tasks
from headrace.core.status import Reason
from headrace.errors import ConfigError, NotOpen
from headrace.testing import harness
from headrace.worker.execution.resources import Resource, Resources
from tests.support.apps import ENGINES, url_of
from tests.support.programs import process_tasks


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """An App on an empty store of each kind."""
    return App(url_of(request.param, tmp_path))


class Pool:
    """Something that is open for a while."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log
        log.append(f"{name} open")

    def close(self) -> None:
        """Be open no more."""
        self._log.append(f"{self.name} closed")


def four_kinds(app: App, log: list[str]) -> list[Resource[Pool]]:
    """A resource of each kind, in this order."""

    @app.resource
    async def a() -> AsyncIterator[Pool]:
        async with asyncio.timeout(600):  # must be left in the task that entered it
            pool = Pool("a", log)
            yield pool
            pool.close()

    @app.resource
    def b() -> Iterator[Pool]:
        pool = Pool("b", log)
        try:
            yield pool
        finally:
            pool.close()

    @app.resource
    @asynccontextmanager
    async def c() -> AsyncIterator[Pool]:
        pool = Pool("c", log)
        yield pool
        pool.close()

    @app.resource
    @contextmanager
    def d() -> Iterator[Pool]:
        pool = Pool("d", log)
        yield pool
        pool.close()

    return [a, b, c, d]


OPENED = ["a open", "b open", "c open", "d open"]
CLOSED = ["d closed", "c closed", "b closed", "a closed"]


async def test_every_kind_is_opened_in_order_and_closed_in_reverse(app: App) -> None:
    log: list[str] = []
    resources = four_kinds(app, log)

    @app.task
    async def names(ctx: Context) -> list[str]:
        log.append("run")
        return [ctx.resource(one).name for one in resources]

    @app.task
    def plain(ctx: Context) -> str:
        return ctx.resource(resources[0]).name

    async with app:
        early = await names.submit()
        async with app.worker():
            assert log[:4] == OPENED  # before the worker counts as started
            assert await early.result(timeout=45) == ["a", "b", "c", "d"]
            assert await plain.run() == "a"
        assert log == [*OPENED, "run", *CLOSED]
        async with app.worker():
            pass
    assert log == [*OPENED, "run", *CLOSED, *OPENED, *CLOSED]


async def test_jobs_that_end_within_the_grace_still_have_them(app: App) -> None:
    log: list[str] = []
    resources = four_kinds(app, log)
    running, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow(ctx: Context) -> str:
        running.set()
        await gate.wait()
        log.append(f"{ctx.resource(resources[3]).name} used")
        return "ok"

    async with app:
        worker = app.worker()
        await worker.start()
        job = await slow.submit()
        await asyncio.wait_for(running.wait(), 45)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        gate.set()
        await stopping
        assert await job.result(timeout=45) == "ok"
    assert log == [*OPENED, "d used", *CLOSED]


async def test_one_that_cannot_be_opened_ends_the_start_and_closes_those_before_it(app: App) -> None:
    log: list[str] = []
    four_kinds(app, log)

    @app.resource
    async def broken() -> AsyncIterator[Pool]:
        if app:
            raise OSError("connection refused")
        yield Pool("broken", log)

    @app.task
    async def never() -> None:
        log.append("run")

    async with app:
        await never.submit()
        with pytest.raises(HeadraceError, match="resource 'broken' could not be opened: OSError: connection refused"):
            async with app.worker():
                raise AssertionError("never here")
        with pytest.raises(HeadraceError, match="'broken'"):
            await app.worker().run()
        assert await app.workers.list() == []
    assert log == [*OPENED, *CLOSED] * 2


async def test_they_are_closed_when_the_workers_main_is_cancelled(app: App) -> None:
    log: list[str] = []
    four_kinds(app, log)
    async with app:
        worker = app.worker()
        await worker.start()
        assert worker._task is not None
        worker._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker.done()
    assert log == [*OPENED, *CLOSED]


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
async def test_a_start_that_hangs_can_be_given_up(app: App, how: str) -> None:
    log: list[str] = []
    four_kinds(app, log)
    opening = asyncio.Event()

    @app.resource
    async def hangs() -> AsyncIterator[None]:
        opening.set()
        try:
            await asyncio.sleep(600)
            yield
        finally:
            log.append("hangs left")

    async with app:
        worker = app.worker()
        starting = asyncio.create_task(worker.run())
        await asyncio.wait_for(opening.wait(), 45)
        if how == "stopped":
            worker.request_stop()
            await starting
        else:
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        assert await app.workers.list() == []
    assert log == [*OPENED, "hangs left", *CLOSED]


async def test_an_error_while_closing_is_logged_and_the_others_are_closed(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    four_kinds(app, log)

    @app.resource
    async def sticky() -> AsyncIterator[None]:
        yield
        raise OSError("it sticks")

    async with app, app.worker():
        pass
    assert log == [*OPENED, *CLOSED]
    assert "resource 'sticky' could not be closed" in caplog.text


async def test_two_workers_have_their_own(app: App) -> None:
    seen: set[object] = set()

    @app.resource
    def thing() -> Iterator[object]:
        yield object()

    @app.task
    async def look(ctx: Context) -> None:
        seen.add(ctx.resource(thing))

    async with app, app.worker(queues=["one"]), app.worker(queues=["two"]):
        for queue in ("one", "one", "two"):
            await look.options(queue=queue).run()
    assert len(seen) == 2


async def test_a_harness_opens_them_and_a_direct_call_says_what_to_do() -> None:
    app, log = App("memory://"), list[str]()
    (a, *_) = four_kinds(app, log)

    @app.task
    async def name(ctx: Context) -> str:
        return ctx.resource(a).name

    async with harness(app) as h:
        job = await name.submit()
        await h.drain()
        assert (await h.job(job)).result == "a"
    assert log == [*OPENED, *CLOSED]
    with pytest.raises(NotOpen, match=r"'a' is not open.*harness.*a\.open\(\)"):
        await name()
    async with a.open() as pool:
        assert pool.name == "a"


async def test_one_of_another_app_is_not_open(app: App) -> None:
    other = App("memory://")

    @other.resource
    def elsewhere() -> Iterator[int]:
        yield 1

    @app.task(retry=Retry(0))
    async def look(ctx: Context) -> int:
        return ctx.resource(elsewhere)

    async with app, app.worker():
        job = await look.submit()
        with pytest.raises(JobFailed, match="'elsewhere' is not open in this worker"):
            await job.result(timeout=45)


async def test_a_collection_of_tasks_has_resources_for_its_app(app: App) -> None:
    tasks = Tasks()

    @tasks.resource
    async def number() -> AsyncIterator[int]:
        yield 7

    @tasks.task
    async def look(ctx: Context) -> int:
        return ctx.resource(number)

    app.include(tasks)
    app.include(tasks)
    assert app._resources == (number,)
    async with app, app.worker():
        assert await look.run() == 7


async def test_a_child_process_has_none(app: App) -> None:
    before = dict(vars(process_tasks.tasks))
    app.include(process_tasks.tasks)
    try:
        async with app, app.worker():
            job = await process_tasks.borrows.submit()
            with pytest.raises(JobFailed, match=r'NotSupported: resource .numbers. .*run_in="process"'):
                await job.result(timeout=30)
            assert (await job.refresh()).reason is Reason.RETRIES_EXHAUSTED
    finally:
        vars(process_tasks.tasks).update(before)


def test_what_is_no_resource_is_refused() -> None:
    app = App("memory://")

    async def coroutine() -> int:
        return 1

    def needy(n: int) -> Iterator[int]:
        yield n

    for wrong in (coroutine, int, 3):
        with pytest.raises(ConfigError, match="must be a generator function"):
            app.resource(wrong)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ConfigError, match="must need no arguments"):
        app.resource(needy)  # type: ignore[arg-type]


async def test_a_function_that_makes_no_context_manager_is_named() -> None:
    def plain() -> int:
        return 1

    resources = Resources([Resource(plain)])  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(HeadraceError, match=r"'plain' could not be opened: ConfigError: .* generator function"):
        await resources.open()
    await resources.close()
    with pytest.raises(NotOpen):
        resources.get(Resource(lambda: iter(())))
