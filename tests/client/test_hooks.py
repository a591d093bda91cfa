"""Middleware as users write it: around every run, on every engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import App, Context, GiveUp, JobFailed, Retry, RetryLater, Snooze, Status, Tasks
from headrace.core.status import Outcome, Reason
from headrace.errors import ConfigError, HandlerFailed, InvalidPayload, Stopped
from headrace.testing import harness
from headrace.worker.execution.hooks import CallNext
from tests.support.apps import ENGINES, url_of
from tests.support.programs import process_tasks
from tests.support.until import until

AT_ONCE = Retry(3, backoff="fixed", initial=0.0, jitter=False)


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """An App on an empty store of each kind."""
    return App(url_of(request.param, tmp_path), defaults={"retry": AT_ONCE})


@pytest.fixture
def process_app(app: App) -> Iterator[App]:
    """An App with tasks that run in child processes; the collection is bound anew for each test."""
    tasks, before = process_tasks.tasks, dict(vars(process_tasks.tasks))
    app.include(tasks)
    yield app
    vars(tasks).update(before)
    for task in tasks._register.tasks.values():
        tasks._register.hooks.attach(task.handler, task.hooks)


async def test_the_apps_is_outside_and_the_tasks_inside(app: App) -> None:
    told: list[str] = []

    def named(name: str) -> Any:
        async def middleware(ctx: Context, call_next: CallNext) -> Any:
            told.append(f"{name} before")
            assert Context.current() is ctx
            value = await call_next()
            told.append(f"{name} after {value}")
            return value

        return middleware

    app.middleware(named("a"))

    @app.task(middleware=[named("c"), named("d")])
    async def double(ctx: Context, n: int) -> int:
        told.append("run")
        return 2 * n

    app.middleware(named("b"))  # also of what was there before it
    async with app, app.worker():
        assert await double.run(3) == 6
    order = ["a", "b", "c", "d"]
    assert told == [f"{one} before" for one in order] + ["run"] + [f"{one} after 6" for one in reversed(order)]


async def test_plain_functions_are_wrapped_on_the_loop_and_run_in_a_thread(app: App) -> None:
    threads: list[str] = []

    @app.middleware
    async def on_the_loop(ctx: Context, call_next: CallNext) -> Any:
        threads.append(threading.current_thread().name)
        try:
            return await call_next() + 1
        except KeyError as error:
            raise GiveUp(f"no {error}") from error

    @app.task
    def plain(ctx: Context, n: int) -> int:
        threads.append(threading.current_thread().name)
        assert Context.current() is ctx
        if n == 0:
            raise KeyError(n)
        return n

    async with app, app.worker():
        assert await plain.run(1) == 2
        with pytest.raises(JobFailed, match="no 0"):
            await plain.run(0)
    assert threads[0] == threading.current_thread().name
    assert threads[1].startswith("headrace-handler")


async def test_functions_in_a_child_process_are_wrapped_too(process_app: App) -> None:
    seen: list[Any] = []

    @process_app.middleware
    async def watch(ctx: Context, call_next: CallNext) -> Any:
        try:
            value = await call_next()
        except Exception as error:
            seen.append(error)
            raise
        seen.append(value)
        return value

    steers = process_tasks.steers.options(retry=AT_ONCE)
    async with process_app, process_app.worker():
        assert (await process_tasks.square.run(5))["square"] == 25
        assert seen.pop()["square"] == 25
        gave_up = await steers.submit("give up")
        with pytest.raises(JobFailed, match="enough"):
            await gave_up.result(timeout=45)
        assert (await gave_up.refresh()).reason is Reason.NON_RETRYABLE
        error = seen.pop()
        assert isinstance(error, HandlerFailed)
        assert error.error is not None
        assert error.error.type == "GiveUp"
        failed = await steers.options(retry=Retry(0)).submit("error")
        with pytest.raises(JobFailed, match="KeyError"):
            await failed.result(timeout=45)
        stored = (await failed.refresh()).error
        assert stored is not None
        assert "in steers" in (stored.traceback or "")  # as the child saw it
        assert isinstance(seen.pop(), HandlerFailed)
        snoozed = await steers.submit("snooze")
        await until(lambda: any(isinstance(one, Snooze) for one in seen))
        await snoozed.cancel()


async def test_a_child_process_that_it_waits_for_no_longer_is_killed(process_app: App, tmp_path: Path) -> None:
    note, answers = tmp_path / "pid", list[Any]()

    @process_app.middleware
    async def impatient(ctx: Context, call_next: CallNext) -> Any:
        if ctx.job.task == "spins":
            calling = asyncio.ensure_future(call_next())
            await until(lambda: note.exists() and note.read_text())
            calling.cancel()
            answers.extend(await asyncio.gather(calling, return_exceptions=True))
            return None
        return await call_next()

    def is_gone() -> bool:
        try:
            os.kill(int(note.read_text()), 0)
        except ProcessLookupError:
            return True
        return False

    async with process_app, process_app.worker(concurrency=1):
        await process_tasks.spins.run(str(note))
        assert [type(one) for one in answers] == [asyncio.CancelledError]
        await until(is_gone)
        assert (await process_tasks.square.run(5))["square"] == 25, "by another child"


async def test_it_may_answer_without_running_the_handler(app: App) -> None:
    ran: list[int] = []

    @app.middleware
    async def cached(ctx: Context, call_next: CallNext) -> Any:
        return {1: 10, 2: "ten"}.get(ctx.job.payload["n"]) or await call_next()

    @app.task
    async def slow(n: int) -> int:
        ran.append(n)
        return n

    async with app, app.worker():
        assert await slow.run(1) == 10
        assert await slow.run(3) == 3
        wrong = await slow.submit(2)
        with pytest.raises(JobFailed, match="Expected `int`"):
            await wrong.result(timeout=45)
        assert (await wrong.refresh()).reason is Reason.INVALID_RESULT
    assert ran == [3]


async def test_what_it_raises_counts_as_raised_by_the_handler(app: App) -> None:
    tries: dict[str, int] = {}

    @app.middleware
    async def steer(ctx: Context, call_next: CallNext) -> Any:
        how = ctx.job.payload["how"]
        tries[how] = tries.get(how, 0) + 1
        if tries[how] == 1:
            raise {"snooze": Snooze(0), "later": RetryLater(0), "error": ValueError("x"), "give up": GiveUp("no")}[how]
        return await call_next()

    @app.task
    async def task(how: str) -> str:
        return how

    async with app, app.worker():
        jobs = {how: await task.submit(how) for how in ("snooze", "later", "error", "give up")}
        for how in ("snooze", "later", "error"):
            assert await jobs[how].result(timeout=45) == how
        with pytest.raises(JobFailed, match="no"):
            await jobs["give up"].result(timeout=45)
        outcomes = {
            how: [one.outcome for one in (await app.jobs.history(job.id)).attempts] for how, job in jobs.items()
        }
    done = Outcome.COMPLETED
    assert outcomes == {
        "snooze": [Outcome.SNOOZED, done],
        "later": [Outcome.FAILED, done],
        "error": [Outcome.FAILED, done],
        "give up": [Outcome.FAILED],
    }


async def test_it_sees_a_payload_that_does_not_fit_and_may_call_again(app: App) -> None:
    seen: list[type[BaseException] | int] = []

    @app.middleware
    async def twice(ctx: Context, call_next: CallNext) -> Any:
        try:
            seen.append(await call_next())
        except InvalidPayload as error:
            seen.append(type(error))
            raise
        return await call_next()

    @app.task
    async def count(n: int) -> int:
        return n + len(seen)

    async with app, app.worker():
        assert await count.run(0) == 1
        draft = count.draft(1)
        draft.payload_text = '{"n": "one"}'
        bad = await draft.submit()
        with pytest.raises(JobFailed):
            await bad.result(timeout=45)
        assert (await bad.refresh()).reason is Reason.INVALID_PAYLOAD
    assert seen == [0, InvalidPayload]


async def test_a_handler_that_is_called_again_finds_its_children_and_its_steps(app: App) -> None:
    paid, children, runs = list[int](), list[UUID](), list[int]()

    async def again(ctx: Context, call_next: CallNext) -> Any:
        await note.submit("of the middleware")
        try:
            return await call_next()
        except ConnectionError:
            return await call_next()

    def pay(customer: int) -> str:
        paid.append(customer)
        return f"receipt {len(paid)}"

    @app.task
    async def note(text: str) -> str:
        return text

    @app.task(middleware=[again])
    async def order(ctx: Context, customer: int) -> str:
        first, second = await asyncio.gather(ctx.step("first", pay, customer), ctx.step("second", pay, customer))
        children.extend([(await note.submit("of the handler")).id, (await note.submit("of the middleware")).id])
        runs.append(ctx.attempt)
        if len(runs) in (1, 3):
            raise ConnectionError
        if ctx.attempt == 1:
            raise ValueError
        return f"{first}, {second}"

    async with app, app.worker():
        job = await order.submit(7)
        assert sorted((await job.result(timeout=45)).split(", ")) == ["receipt 1", "receipt 2"]
        assert (runs, paid) == ([1, 1, 2, 2], [7, 7])
        assert children == children[:2] * 4
        assert len((await app.jobs.list(task="note")).items) == 3, "one of the middleware's, two of the handler's"


async def test_a_stream_that_has_begun_is_not_begun_again_in_the_same_attempt(app: App) -> None:
    runs = list[int]()

    async def again(ctx: Context, call_next: CallNext) -> Any:
        for _ in range(2):
            with contextlib.suppress(ConnectionError):
                return await call_next()
        return await call_next()

    @app.task(middleware=[again])
    async def lines(ctx: Context) -> AsyncIterator[int]:
        runs.append(ctx.attempt)
        if len(runs) == 1:
            raise ConnectionError("before the first item: nothing has begun")
        yield 1
        if len(runs) == 2:
            raise ConnectionError("behind it")
        yield 2

    async with app, app.worker():
        job = await lines.submit()
        assert await job.result(timeout=45) == 2
        assert [number async for number in job.stream()] == [1, 2]
        error = (await app.jobs.history(job.id)).attempts[0].error
        assert error is not None
        assert "call_next was called again" in error.message
    assert runs == [1, 1, 2]


@pytest.mark.parametrize("where", ["in the handler", "before it"])
async def test_cancelling_a_job_passes_through_it(app: App, where: str) -> None:
    running, left = asyncio.Event(), asyncio.Event()

    @app.middleware
    async def around(ctx: Context, call_next: CallNext) -> Any:
        try:
            if where == "before it":
                running.set()
                await asyncio.sleep(60)
            return await call_next()
        except asyncio.CancelledError:
            assert ctx.stopping == "cancelled"
            left.set()
            raise

    @app.task
    async def endless() -> None:
        running.set()
        await asyncio.sleep(60)

    @app.task
    def plain() -> None:
        raise AssertionError("never reached")

    task = endless if where == "in the handler" else plain
    async with app, app.worker():
        job = await task.submit()
        await asyncio.wait_for(running.wait(), 45)
        await job.cancel()
        await until(lambda: _is(job, Status.CANCELLED))
        assert left.is_set()


async def _is(job: Any, status: Status) -> bool:
    return (await job.refresh()).status is status


async def test_a_thread_is_waited_for_when_its_job_is_stopped(app: App) -> None:
    running, gate, seen = threading.Event(), threading.Event(), list[Any]()

    @app.middleware
    async def around(ctx: Context, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except BaseException as error:
            seen.append(type(error))
            raise

    @app.task
    def patient(ctx: Context) -> None:
        running.set()
        while ctx.stopping is None:
            gate.wait(0.01)
        gate.wait(45)
        ctx.check()

    try:
        async with app, app.worker() as worker:
            job = await patient.submit()
            await until(running.is_set)
            await job.cancel()
            await until(lambda: worker.stats.stuck_threads == 0 and worker.stats.busy == 1)
            gate.set()
            await until(lambda: _is(job, Status.CANCELLED))
            await until(lambda: worker.stats.busy == 0)
    finally:
        gate.set()
    assert seen == [Stopped]


async def test_a_time_out_reaches_it(app: App) -> None:
    seen: list[Any] = []

    @app.middleware
    async def around(ctx: Context, call_next: CallNext) -> Any:
        try:
            return await call_next()
        finally:
            seen.append(ctx.stopping)

    @app.task(timeout=0.1, retry=Retry(0))
    async def slow() -> None:
        await asyncio.sleep(60)

    async with app, app.worker():
        job = await slow.submit()
        with pytest.raises(JobFailed):
            await job.result(timeout=45)
        assert (await job.refresh()).reason is Reason.TIMEOUT
    assert seen == ["timed_out"]


async def test_a_harness_calls_it_and_a_direct_call_does_not() -> None:
    app = App("memory://")
    seen: list[int] = []

    @app.middleware
    async def around(ctx: Context, call_next: CallNext) -> Any:
        seen.append(ctx.attempt)
        return await call_next()

    @app.task
    async def one() -> int:
        return 1

    @app.task
    def two() -> int:
        return 2

    assert (await one(), two(), seen) == (1, 2, [])
    async with harness(app) as h:
        jobs = [await one.submit(), await two.submit()]
        await h.drain()
        assert [(await h.job(job)).result for job in jobs] == [1, 2]
    assert seen == [1, 1]


def test_without_any_the_handler_is_called_directly() -> None:
    app = App("memory://")

    @app.task
    async def one() -> None: ...

    assert [task.handler.direct for task in (one,)] == [True]

    async def around(ctx: Context, call_next: CallNext) -> Any:
        return await call_next()

    app.middleware(around)
    assert not one.handler.direct
    tasks = Tasks()

    @tasks.task
    async def other() -> None: ...

    assert other.handler.direct
    app.include(tasks)
    assert other.handler.middleware == (around,)


def test_what_is_no_middleware_is_refused() -> None:
    app = App("memory://")

    def plain(ctx: Context, call_next: CallNext) -> Any: ...

    async def one(ctx: Context) -> Any: ...

    for wrong in (plain, one, 3):
        with pytest.raises(ConfigError, match="async def name"):
            app.middleware(wrong)  # type: ignore[type-var]  # that is what is tested
        with pytest.raises(ConfigError, match="async def name"):
            app.task(middleware=[wrong])(plain)  # type: ignore[list-item]
