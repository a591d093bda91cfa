"""A worker on a loop of its own: whatever its handlers raise, from wherever, it goes on."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace import App, Job, JobFailed
from headrace.core.entry import Append, Kind
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Reason, Status
from headrace.errors import HeadraceError
from headrace.worker.execution.context import Context
from headrace.worker.execution.hooks import CallNext
from headrace.worker.execution.resources import Resource
from headrace.worker.process.loops import run_owned
from tests.support.shop import Shop, open_shop
from tests.support.until import until

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Leave(BaseException):
    """Nobody's Exception."""


KINDS = {
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "Leave": Leave,
}


class Hostile(Exception):
    """Says nothing, and ends whoever asks."""

    def __str__(self) -> str:
        raise SystemExit("from __str__")

    __repr__ = __str__


class Noted(Exception):
    """Says what it is, and ends whoever asks for its notes, as a traceback does."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise SystemExit("from __notes__")


async def raises(kind: type[BaseException]) -> None:
    await asyncio.sleep(0)
    raise kind("on purpose")


async def at_once(kind: type[BaseException]) -> None:
    raise kind("on purpose")


async def in_a_task(kind: type[BaseException]) -> None:
    await asyncio.create_task(raises(kind))


async def in_a_group(kind: type[BaseException]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(raises(kind))
        group.create_task(asyncio.sleep(60))


async def gathered(kind: type[BaseException]) -> None:
    await asyncio.gather(asyncio.sleep(0.01), raises(kind))


async def in_a_thread(kind: type[BaseException]) -> None:
    def call() -> None:
        raise kind("on purpose")

    await asyncio.to_thread(call)


async def while_cleaning_up(kind: type[BaseException]) -> None:
    try:
        raise ValueError("first")
    finally:
        await raises(kind)


async def in_a_step(kind: type[BaseException]) -> None:
    def call() -> None:
        raise kind("on purpose")

    await Context.current().step("bad", call)


async def after_progress(kind: type[BaseException]) -> None:
    ctx = Context.current()
    ctx.progress(10)
    await ctx.step("good", lambda: 1)
    await asyncio.create_task(raises(kind))


WAYS: dict[str, Callable[[type[BaseException]], Coroutine[Any, Any, None]]] = {
    fn.__name__: fn
    for fn in (
        at_once,
        in_a_task,
        in_a_group,
        gathered,
        in_a_thread,
        while_cleaning_up,
        in_a_step,
        after_progress,
    )
}


def on_own_loop(loop: str, folder: Path, story: Callable[[Shop], Awaitable[None]]) -> None:
    """Tell a story in a shop, on a loop that belongs to its worker."""

    async def main() -> None:
        async with open_shop("memory", folder) as shop:
            await story(shop)

    run_owned(main(), loop_factory=LOOPS[loop])


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", WAYS)
def test_whatever_a_handler_raises_ends_its_attempt_with_that_type_and_not_the_worker(
    loop: str, way: str, tmp_path: Path
) -> None:
    async def story(shop: Shop) -> None:
        async def bad(kind: str) -> None:
            await WAYS[way](KINDS[kind])

        async def fine() -> str:
            return "fine"

        shop.task(bad)
        shop.task(fine)
        async with shop.worker() as worker:
            for kind in KINDS:
                job = await shop.ended(await shop.submit("bad", payload={"kind": kind}, retry=Retry(1, initial=0)))
                assert (job.status, job.reason, job.charged) == (Status.FAILED, Reason.RETRIES_EXHAUSTED, 2)
                assert job.error is not None
                # A group of tasks hands on only exits as they are; all else it wraps, exits of coroutines included.
                wraps = way == "in_a_group" and kind in ("GeneratorExit", "Leave")
                assert job.error.type == ("BaseExceptionGroup" if wraps else kind)
                assert (await shop.ended(await shop.submit("fine"))).result == "fine"
            await until(lambda: worker.healthy)

    on_own_loop(loop, tmp_path, story)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_a_handler_leaves_on_the_loop_ends_nothing_either(loop: str, tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        done: list[str] = []

        def call_back() -> None:
            done.append("called back")
            raise SystemExit(3)

        async def left() -> None:
            done.append("ran")
            raise KeyboardInterrupt

        async def leaves() -> None:
            running = asyncio.get_running_loop()
            running.call_soon(call_back)
            running.call_later(0.01, call_back)
            kept.append(asyncio.create_task(left()))

        kept = list[asyncio.Task[None]]()
        shop.task(leaves)
        async with shop.worker():
            assert (await shop.ended(await shop.submit("leaves"))).status is Status.COMPLETED
            await until(lambda: len(done) == 3)
            assert (await shop.ended(await shop.submit("leaves"))).status is Status.COMPLETED
            await until(lambda: len(done) == 6)
        assert {type(task.exception()) for task in kept} == {KeyboardInterrupt}

    on_own_loop(loop, tmp_path, story)


@pytest.mark.parametrize("loop", LOOPS)
def test_errors_that_end_whoever_shows_them_are_kept_without_their_words(loop: str, tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        async def hostile() -> None:
            raise Hostile

        def plain() -> None:
            raise ValueError("outside") from Hostile()

        shop.task(hostile)
        shop.task(plain)
        async with shop.worker():
            for name, kind in (("hostile", "Hostile"), ("plain", "ValueError")):
                job = await shop.ended(await shop.submit(name, retry=Retry(0)))
                assert job.error is not None
                assert job.error.type == kind
        (first,) = [one for one in (await shop.engine.jobs.get([job.id])) if one is not None]
        assert first.error is not None

    on_own_loop(loop, tmp_path, story)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_traceback_that_ends_whoever_shows_it_is_left_out(loop: str, tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        async def noted() -> None:
            raise Noted("on purpose")

        def plain() -> None:
            raise Noted("on purpose")

        shop.task(noted)
        shop.task(plain)
        async with shop.worker() as worker:
            for name in ("noted", "plain"):
                job = await shop.ended(await shop.submit(name, retry=Retry(0)))
                assert job.error is not None
                assert (job.status, job.error.type, job.error.message) == (Status.FAILED, "Noted", "on purpose")
                assert job.error.traceback == "<the traceback cannot be shown: SystemExit>"
            await until(lambda: worker.healthy)

    on_own_loop(loop, tmp_path, story)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_callbacks_middleware_streams_and_bulk_calls_end_nothing(loop: str, kind: str) -> None:
    app, error, told = App("memory://"), KINDS[kind], list[str]()

    async def told_badly(job: Job) -> None:
        told.append("async")
        raise error("on purpose")

    async def told_by_a_task(job: Job) -> None:
        told.append("task")
        await asyncio.create_task(raises(error))

    def told_in_a_thread(job: Job) -> None:
        told.append("thread")
        raise error("on purpose")

    async def around(ctx: Context, call_next: CallNext) -> Any:
        await call_next()
        await asyncio.create_task(raises(error))

    @app.task(on_success=[told_badly, told_in_a_thread, told_by_a_task])
    async def fine() -> str:
        return "fine"

    @app.task(retry=Retry(0), middleware=[around])
    async def wrapped() -> None:
        """Its middleware raises."""

    @app.task(retry=Retry(0))
    async def flows() -> AsyncIterator[int]:
        yield 1
        raise error("on purpose")

    @app.bulk(size=2, wait=0.01, retry=Retry(0))
    async def many(items: list[int]) -> list[int]:
        await asyncio.create_task(raises(error))
        return items

    async def main() -> None:
        async with app, app.worker():
            handles = [await wrapped.submit(), await flows.submit(), await many.submit(1), await many.submit(2)]
            for handle in handles:
                with pytest.raises(JobFailed):
                    await handle.result(timeout=45)
                job = await app.jobs.get(handle.id)
                assert job.error is not None
                assert job.error.type == kind
            for _ in range(2):
                assert await fine.run() == "fine"
            await until(lambda: sorted(told) == ["async", "async", "task", "task", "thread", "thread"])

    run_owned(main(), loop_factory=LOOPS[loop])


def test_an_exit_of_main_itself_is_passed_on() -> None:
    async def main() -> None:
        raise SystemExit(7)

    with pytest.raises(SystemExit, match="7"):
        run_owned(main())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_that_may_be_meant_for_main_is_passed_on(error: type[BaseException]) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(_raise, error)
        await asyncio.Event().wait()

    with pytest.raises(error):
        run_owned(main(), goes_on=lambda: False)


def _raise(error: type[BaseException]) -> None:
    raise error


@pytest.mark.parametrize("loop", LOOPS)
def test_an_interrupt_from_outside_cancels_main_as_asyncio_does(loop: str) -> None:
    cancelled = []

    async def main() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_owned(main(), loop_factory=LOOPS[loop])
    finally:
        signal.signal(signal.SIGINT, before)
    assert cancelled == [True]


async def test_embedded_in_a_loop_of_somebody_elses_the_call_itself_is_guarded(shop: Shop) -> None:
    async def bad(kind: str) -> None:
        raise KINDS[kind]("on purpose")

    def plain(kind: str) -> None:
        raise KINDS[kind]("on purpose")

    async def steps(ctx: Context, kind: str) -> None:
        await ctx.step("bad", plain, kind)

    for fn in (bad, plain, steps):
        shop.task(fn)
    async with shop.worker():
        for name in ("bad", "plain", "steps"):
            for kind in KINDS:
                job = await shop.ended(await shop.submit(name, payload={"kind": kind}, retry=Retry(0)))
                assert job.error is not None
                assert (job.status, job.error.type) == (Status.FAILED, kind)


async def test_what_was_said_before_an_exit_closed_the_handler_is_kept(shop: Shop) -> None:
    """A GeneratorExit that is thrown in by what a handler waits for closes every coroutine around it."""
    keep = shop.writer.append

    async def slow(append: Append) -> bool:
        for _ in range(100):  # the end of the attempt, if it did not wait, would be first
            await asyncio.sleep(0)
        return await keep(append)

    async def talks() -> None:
        logging.getLogger("odd").warning("the last words")
        await asyncio.create_task(raises(GeneratorExit))

    shop.writer.append = slow  # type: ignore[method-assign]
    shop.task(talks)
    async with shop.worker():
        job = await shop.ended(await shop.submit("talks", retry=Retry(0)))
    assert job.error is not None
    assert (job.status, job.error.type) == (Status.FAILED, "GeneratorExit")
    assert len(await shop.engine.entries.tail(job.id, Kind.LOG)) == 1


async def test_a_resource_that_exits_is_one_that_cannot_be_opened(shop: Shop) -> None:
    @asynccontextmanager
    async def leaving() -> AsyncIterator[None]:
        _raise(SystemExit)
        yield

    with pytest.raises(HeadraceError, match="'leaving' could not be opened: SystemExit"):
        await shop.worker(resources=[Resource(leaving)]).run()
