"""Handlers that wait for other jobs yield their slots, and have them back before they go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, JobHandle, Retry, Status, Task
from headrace.client import background
from headrace.errors import Stopped
from headrace.worker import yielded_slots
from headrace.worker.worker import Worker
from tests.support.apps import ENGINES, url_of
from tests.support.programs import process_families
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

ONCE = Retry(0)


class Gauge:
    """How many handlers are at work of their own at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1

    @contextmanager
    def away(self) -> Iterator[None]:
        """While the handler waits for others."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


class Family:
    """An App whose handlers wait for one another, and what they did."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url)
        self.gauge = gauge = Gauge()
        self.said: list[str] = []
        self.gate = asyncio.Event()

        @app.task
        async def leaf(n: int) -> int:
            with gauge:
                await asyncio.sleep(0.001)
                return n

        @app.task
        async def branch(n: int) -> int:
            with gauge:
                with gauge.away():
                    got = await leaf.run(n)
                await asyncio.sleep(0.001)
                return got + 1

        @app.task
        async def tree(n: int) -> int:
            with gauge:
                with gauge.away():
                    got = await branch.run(n)
                await asyncio.sleep(0.001)
                return got + 1

        @app.task
        async def gathers(n: int) -> int:
            with gauge:
                with gauge.away():
                    got = await asyncio.gather(*(leaf.run(n + i) for i in range(3)))
                await asyncio.sleep(0.001)
                return sum(got)

        @app.task
        async def says(what: str) -> None:
            self.said.append(what)

        @app.task
        async def holds() -> None:
            self.said.append("holds")
            await self.gate.wait()

        @app.task(retry=ONCE)
        async def waits(id: str) -> int:
            try:
                got: int = await app.jobs.handle(id).result()
            except asyncio.CancelledError:
                self.said.append("stopped")
                raise
            self.said.append("went on")
            return got

        self.holds, self.waits = holds, waits
        self.leaf, self.branch, self.tree, self.gathers, self.says = leaf, branch, tree, gathers, says

    async def later(self) -> JobHandle[int]:
        """A job that no worker runs, for the test to end by hand."""
        return await self.leaf.options(delay=3600).submit(1)

    async def line_up(self, worker: Worker, parent: Task[[str], Any]) -> JobHandle[Any]:
        """Have a job of the task, which waits for another, wait for the only slot: somebody holds it."""
        other = await self.later()
        job = await parent.submit(str(other.id))
        await until(lambda: yielded(worker) == 1)
        await self.holds.submit()
        await until(lambda: self.said == ["holds"])
        await self.app.jobs.handle(other.id).resolve(result=1)
        await until(lambda: in_line(worker) == 1)
        return job

    async def ended(self, handle: JobHandle[object]) -> Status:
        """How the job ended."""

        async def check() -> bool:
            return (await handle.refresh()).ended

        await until(check)
        assert handle.status is not None
        return handle.status


@pytest.fixture(params=ENGINES)
async def family(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Family]:
    """On every engine."""
    made = Family(url_of(request.param, tmp_path))
    async with made.app:
        yield made
    await asyncio.to_thread(background.close)


@pytest.fixture
async def house() -> AsyncIterator[Family]:
    """On one engine: what the worker does by itself."""
    made = Family("memory://")
    async with made.app:
        yield made
    await asyncio.to_thread(background.close)


def yielded(worker: Worker) -> int:
    """How many slots are yielded."""
    return worker._slots.yielded.count


def in_line(worker: Worker) -> int:
    """How many wait for a slot to go on."""
    return len(worker._slots.yielded.line)


# -- no deadlocks


async def test_three_generations_in_one_slot(family: Family) -> None:
    async with family.app.worker(concurrency=1) as worker:
        assert await family.tree.run(5) == 7
        await until(lambda: yielded(worker) == 0)
    assert family.gauge.most == 1


async def test_many_parents_of_several_children_in_two_slots(family: Family) -> None:
    async with family.app.worker(concurrency=2) as worker:
        parents = await family.gathers.map([(i,) for i in range(20)])
        assert [await one.result() for one in parents] == [3 * i + 3 for i in range(20)]
        await until(lambda: yielded(worker) == 0)
    assert family.gauge.most == 2


async def test_several_waits_of_one_handler_lend_one_slot(house: Family) -> None:
    gates, seen = asyncio.Event(), list[int]()

    @house.app.task
    async def gated(n: int) -> int:
        seen.append(yielded(worker))
        await gates.wait()
        return n

    @house.app.task
    async def parent() -> int:
        return sum(await asyncio.gather(*(gated.run(i) for i in range(5))))

    async with house.app.worker(concurrency=10) as worker:
        job = await parent.submit()
        await until(lambda: len(seen) == 5)
        await until(lambda: (yielded(worker), worker.stats.busy) == (1, 5))
        gates.set()
        assert await job.result() == 10
        await until(lambda: yielded(worker) == 0)
    assert set(seen) <= {0, 1}


async def test_a_stream_is_read_in_the_only_slot(family: Family) -> None:
    @family.app.task
    async def count(n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    @family.app.task
    async def owns() -> list[int]:
        return [item async for item in count.stream(5)]

    @family.app.task
    async def observes() -> list[int]:
        handle = await count.submit(5)
        return [item async for item in handle.stream()]

    async with family.app.worker(concurrency=1) as worker:
        assert await owns.run() == [0, 1, 2, 3, 4]
        assert await observes.run() == [0, 1, 2, 3, 4]
        await until(lambda: yielded(worker) == 0)


async def test_a_job_is_watched_in_the_only_slot(house: Family) -> None:
    @house.app.task
    async def watches() -> str:
        handle = await house.leaf.submit(1)
        async for job in handle.watch():
            last = job.status
        return last

    async with house.app.worker(concurrency=1):
        assert await watches.run() == "completed"


async def test_a_batch_is_waited_for_in_the_only_slot(family: Family) -> None:
    @family.app.task
    async def all_at_once() -> int:
        async with family.app.batch() as batch:
            for i in range(3):
                batch.add(family.leaf.draft(i))
        return sum(await batch.results())

    @family.app.task
    async def one_by_one() -> int:
        async with family.app.batch() as batch:
            for i in range(3):
                batch.add(family.leaf.draft(i))
        total = 0
        async for handle in batch.as_completed():
            with family.gauge:
                await asyncio.sleep(0.001)
                total += await handle.result()
        return total

    async with family.app.worker(concurrency=1) as worker:
        assert await all_at_once.run() == await one_by_one.run() == 3
        await until(lambda: yielded(worker) == 0)
    assert family.gauge.most == 1


async def test_a_bulk_handler_waits_in_the_only_slot(family: Family) -> None:
    @family.app.bulk(size=10, wait=0.01)
    async def doubles(items: list[int]) -> list[int | Exception]:
        return [2 * one for one in await asyncio.gather(*(family.leaf.run(item) for item in items))]

    async with family.app.worker(concurrency=1) as worker:
        jobs = await doubles.map([(i,) for i in range(20)])
        assert [await job.result() for job in jobs] == [2 * i for i in range(20)]
        await until(lambda: yielded(worker) == 0)


async def test_a_middleware_waits_in_the_only_slot(house: Family) -> None:
    async def first(ctx: Context, call_next: object) -> int:
        assert callable(call_next)
        return int(await house.leaf.run(1)) + int(await call_next())

    @house.app.task(middleware=[first])
    async def around() -> int:
        return 1

    async with house.app.worker(concurrency=1):
        assert await around.run() == 2


# -- plain functions


async def test_plain_functions_wait_in_the_only_slot(family: Family) -> None:
    gauge, app = family.gauge, family.app

    @app.task
    def middle(n: int) -> int:
        with gauge:
            with gauge.away():
                got = app.wait(family.leaf.run(n))
            return got + 1

    @app.task
    def top(n: int) -> int:
        with gauge:
            with gauge.away():
                got = app.wait(middle.submit_sync(n).result())
            return got + 1

    async with app.worker(concurrency=1) as worker:
        assert await top.run(1) == 3
        await until(lambda: yielded(worker) == 0)
    assert gauge.most == 1


async def test_many_plain_parents_wait_in_two_slots(family: Family) -> None:
    gauge, app = family.gauge, family.app

    @app.task
    def single(n: int) -> int:
        with gauge:
            return n

    @app.task
    def parent(n: int) -> int:
        with gauge:
            with gauge.away():
                handles = [single.submit_sync(n + i) for i in range(3)]
                got = [app.wait(one.result()) for one in handles]
            return sum(got)

    async with app.worker(concurrency=2) as worker:
        jobs = await parent.map([(i,) for i in range(20)])
        assert [await job.result() for job in jobs] == [3 * i + 3 for i in range(20)]
        await until(lambda: yielded(worker) == 0)
    # Between a wait and the next one each of them is at work of its own; the gauge does not see that.
    assert gauge.most <= 2


async def test_no_more_threads_wait_than_are_allowed(
    house: Family, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(yielded_slots.MAX_YIELDED_SLOTS, "thread", 2)
    gate = asyncio.Event()

    @house.app.task
    async def gated() -> int:
        await gate.wait()
        return 1

    @house.app.task
    def parent() -> int:
        return house.app.wait(gated.handle(job.id).result())

    async with house.app.worker(concurrency=2) as worker:
        job = await gated.submit()
        await until(lambda: len(worker._slots.runs) == 1)
        # Two yield, and the slot that is left is not for a third.
        parents = await parent.map([()] * 4)
        await until(lambda: "no more of these tasks (parent) are begun here" in caplog.text)
        other = await house.leaf.submit(1)
        assert await other.result(timeout=45) == 1
        assert (len(worker._slots.runs), yielded(worker)) == (3, 2)
        gate.set()
        assert [await one.result() for one in parents] == [1] * 4
        await until(lambda: yielded(worker) == 0)


@pytest.mark.parametrize("concurrency", [1, 2, 5])
async def test_more_plain_parents_than_may_wait_do_not_keep_their_children_from_running(
    family: Family, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    monkeypatch.setitem(yielded_slots.MAX_YIELDED_SLOTS, "thread", 3)
    app = family.app

    @app.task
    def middle(n: int) -> int:
        return app.wait(family.leaf.run(n))

    @app.task
    def top(n: int) -> int:
        return app.wait(middle.run(n))

    handles = await top.map([(n,) for n in range(12)])
    async with app.worker(concurrency=concurrency):
        assert [await one.result(timeout=30) for one in handles] == list(range(12))
        # Those that were turned away were not charged.
        assert {(await one.refresh()).charged for one in handles} == {1}


# -- in line


async def test_who_comes_back_goes_before_what_is_new(family: Family) -> None:
    async with family.app.worker(concurrency=1) as worker:
        job = await family.line_up(worker, family.waits)
        await family.says.map([("late",)] * 5)
        assert family.said == ["holds"]
        family.gate.set()
        assert await job.result() == 1
        await until(lambda: len(family.said) == 7)
    assert family.said == ["holds", "went on"] + ["late"] * 5


async def test_what_has_ended_is_not_worth_a_slot(house: Family) -> None:
    @house.app.task
    async def parent(id: str) -> int:
        await house.says.map([("other",)] * 3)
        got: int = await house.app.jobs.handle(id).result()
        house.said.append("parent")
        return got

    async with house.app.worker(concurrency=1):
        child = await house.leaf.submit(3)
        await child.result()
        assert await parent.run(str(child.id)) == 3
        await until(lambda: len(house.said) == 4)
    assert house.said[0] == "parent"


async def test_a_time_out_of_the_handlers_own_waits_for_a_slot_as_well(house: Family) -> None:
    @house.app.task
    async def parent(id: str) -> None:
        try:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await house.app.jobs.handle(id).result()
        except TimeoutError:
            house.said.append("timed out")

    limits: list[asyncio.Timeout] = []
    async with house.app.worker(concurrency=1) as worker:
        job = await parent.submit(str((await house.later()).id))
        await until(lambda: yielded(worker) == 1)
        await house.holds.submit()
        await until(lambda: house.said)
        limits[0].reschedule(0)
        await until(lambda: in_line(worker) == 1)
        assert house.said == ["holds"]
        house.gate.set()
        await job.result()
        assert yielded(worker) == 0
    assert house.said == ["holds", "timed out"]


async def test_a_task_that_waits_again_while_another_is_in_line(house: Family) -> None:
    again = asyncio.Event()

    @house.app.task
    async def parent(id: str) -> int:
        async def later() -> int:
            await again.wait()
            return await house.leaf.run(2)

        return sum(await asyncio.gather(house.app.jobs.handle(id).result(), later()))

    async with house.app.worker(concurrency=1) as worker:
        job = await house.line_up(worker, parent)
        again.set()
        await until(lambda: in_line(worker) == 0)
        assert yielded(worker) == 1
        house.gate.set()
        assert await job.result() == 3
        await until(lambda: yielded(worker) == 0)


# -- being stopped


async def test_cancelled_while_lent(family: Family) -> None:
    async with family.app.worker(concurrency=1) as worker:
        other = await family.later()
        job = await family.waits.submit(str(other.id))
        await until(lambda: yielded(worker) == 1)
        await job.cancel()
        assert await family.ended(job) is Status.CANCELLED
        await until(lambda: yielded(worker) == 0)
        assert await family.tree.run(1) == 3
        assert (await other.refresh()).status is Status.SCHEDULED, "result only observes"
    assert (family.gauge.most, family.said) == (1, ["stopped"])


async def test_cancelled_while_in_line(family: Family) -> None:
    async with family.app.worker(concurrency=1) as worker:
        job = await family.line_up(worker, family.waits)
        await job.cancel()
        # It waits for no slot to clean up: the one that another holds is not in its way.
        assert await family.ended(job) is Status.CANCELLED
        assert (yielded(worker), in_line(worker), family.said) == (0, 0, ["holds", "stopped"])
        family.gate.set()
        assert await family.tree.run(1) == 3
    assert family.gauge.most == 1


async def test_a_plain_function_is_stopped_while_it_waits(family: Family) -> None:
    app = family.app

    @app.task(retry=ONCE)
    def parent(id: str) -> None:
        try:
            app.wait(app.jobs.handle(id).result())
        except Stopped as stopped:
            family.said.append(stopped.why)
            family.said.append(app.wait(parting()))  # on its way out it may do what it has to
            raise

    async def parting() -> str:
        return "bye"

    async with app.worker(concurrency=1) as worker:
        other = await family.later()
        job = await parent.submit(str(other.id))
        await until(lambda: yielded(worker) == 1)
        await job.cancel()
        assert await family.ended(job) is Status.CANCELLED
        await until(lambda: yielded(worker) == 0)
        assert family.said == ["cancelled", "bye"]
        assert (await other.refresh()).status is Status.SCHEDULED, "result only observes"
        assert await family.leaf.run(1) == 1


async def test_a_plain_function_is_stopped_in_line(house: Family) -> None:
    @house.app.task(retry=ONCE)
    def parent(ctx: Context, id: str) -> None:
        house.app.wait(house.app.jobs.handle(id).result())
        ctx.check()

    async with house.app.worker(concurrency=1) as worker:
        job = await house.line_up(worker, parent)
        await job.cancel()
        assert await house.ended(job) is Status.CANCELLED
        await until(lambda: (yielded(worker), in_line(worker)) == (0, 0))
        house.gate.set()
        assert await house.tree.run(1) == 3
    assert house.gauge.most == 1


async def test_the_time_goes_on_while_lent(family: Family) -> None:
    @family.app.task(retry=ONCE, timeout=0.3)
    async def parent() -> None:
        await (await family.leaf.options(delay=3600).submit(1)).result()

    async with family.app.worker(concurrency=1) as worker:
        job = await parent.submit()
        assert await family.ended(job) is Status.FAILED
        assert job.last is not None
        assert job.last.reason == "timeout"
        await until(lambda: yielded(worker) == 0)


async def test_a_worker_that_stops_gives_back_who_waits(family: Family) -> None:
    @family.app.task(retry=ONCE)
    async def parent() -> None:
        await family.leaf.options(delay=3600).run(1)

    async with family.app.worker(concurrency=1, grace=0.1) as worker:
        job = await parent.submit()
        await until(lambda: yielded(worker) == 1)
    back = await job.refresh()
    assert (back.status, back.charged) == (Status.QUEUED, 0)
    (child,) = (await family.app.jobs.list(task="leaf")).items
    assert child.status is Status.SCHEDULED, "the next attempt finds it"


async def test_while_a_worker_stops_who_waits_may_still_end(house: Family) -> None:
    gate = asyncio.Event()

    @house.app.task
    async def gated() -> int:
        await gate.wait()
        return 1

    @house.app.task
    async def parent() -> int:
        return await gated.run() + 1

    async with house.app.worker(concurrency=1) as worker:
        job = await parent.submit()
        await until(lambda: yielded(worker) == 1 and len(worker._slots.runs) == 2)
        worker.request_stop()
        gate.set()
    assert (await job.refresh()).result == 2


async def test_a_thread_that_waits_for_ever_holds_no_slot(family: Family) -> None:
    """Who cannot be stopped is counted, but a slot that is yielded is not lost: the worker need not leave."""
    app = family.app

    async def alone(id: str) -> None:
        async with app:  # on a loop of the thread's own
            await app.jobs.handle(id).result()

    @app.task(retry=ONCE)
    def parent(id: str) -> None:
        asyncio.run(alone(id))

    async with app.worker(concurrency=2) as worker:
        other = await family.later()
        job = await parent.submit(str(other.id))
        await until(lambda: yielded(worker) == 1)
        (run,) = worker._slots.runs.values()
        run.stop("timed_out")  # as when its time is up
        assert await family.ended(job) is Status.FAILED
        stuck = worker._slots.stuck
        await until(lambda: len(stuck) == 1 and yielded(worker) == 1)
        stuck.look(worker.host.clock.monotonic())
        stuck.look(worker.host.clock.monotonic() + 3600)
        assert stuck.hopeless == 0
        assert await family.leaf.run(1) == 1
        await app.jobs.handle(other.id).resolve(result=1)
        await until(lambda: len(stuck) == 0 and yielded(worker) == 0)


# -- nothing leaks


async def test_a_wait_that_a_handler_leaves_behind_lends_nothing(house: Family) -> None:
    gate, left = asyncio.Event(), list[asyncio.Task[int]]()

    @house.app.task
    async def gated() -> int:
        await gate.wait()
        return 1

    @house.app.task
    async def leaves(id: str) -> None:
        left.append(asyncio.create_task(house.app.jobs.handle(id).result()))
        if len(left) == 1:
            await until(lambda: yielded(worker) == 1)

    async with house.app.worker(concurrency=2) as worker:
        job = await gated.submit()
        await until(lambda: len(worker._slots.runs) == 1)
        await leaves.run(str(job.id))  # ends while its wait goes on
        assert yielded(worker) == 0
        await leaves.run(str(job.id))  # begins to wait when it has ended
        assert [await one.result() for one in await house.leaf.map([(i,) for i in range(20)])] == [*range(20)]
        assert yielded(worker) == 0
        gate.set()
        assert await asyncio.gather(*left) == [1, 1]
        assert await house.gathers.run(1) == 6
        await until(lambda: yielded(worker) == 0)
    assert house.gauge.most == 2


async def test_the_next_job_in_a_slot_does_not_wait_for_the_one_before(house: Family) -> None:
    seen: list[bool] = []

    @house.app.task
    async def looks(ctx: Context) -> None:
        seen.append(getattr(ctx._caller, "own_slot", True) is None)

    async with house.app.worker(concurrency=1):
        await house.tree.run(1)
        for job in await looks.map([()] * 3):
            await job.result()
    assert seen == [True] * 3


async def test_a_direct_call_and_a_caller_outside_lend_nothing(house: Family) -> None:
    async with house.app.worker(concurrency=1) as worker:
        assert await house.branch(1) == 2
        assert (await house.gathers.run(1), yielded(worker)) == (6, 0)


# -- in a child process


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_child_process_waits_in_the_only_slot(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of(kind, tmp_path)
    monkeypatch.setenv("HEADRACE_URL", url)
    app = process_families.app
    with app.override(url=url):
        async with app, app.worker(concurrency=1) as worker:
            assert await process_families.parent.run(4) == 5 + 6
            await until(lambda: yielded(worker) == 0)


async def test_a_child_process_in_line_goes_on_when_there_is_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of("sqlite", tmp_path)
    monkeypatch.setenv("HEADRACE_URL", url)
    app, held = process_families.app, tmp_path / "held"
    with app.override(url=url):
        async with app, app.worker(concurrency=1) as worker:
            other = await process_families.plus_one.options(delay=3600).submit(1)
            job = await process_families.waits.submit(str(other.id), str(held))
            await until(lambda: yielded(worker) == 1)
            await process_families.holds.submit(str(held))
            await until(held.exists)
            await app.jobs.handle(other.id).resolve(result=2)
            await until(lambda: in_line(worker) == 1)
            (tmp_path / "held.open").touch()
            assert await job.result() == "nobody holds it"
            await until(lambda: yielded(worker) == 0)
