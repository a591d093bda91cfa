"""Streams, through the public face: read while they run, read again, passed on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from headrace import App, Context, JobCancelled, JobFailed, Retry, Status, Stream
from headrace.errors import ConfigError, InvalidPayload, NotSupported, StreamRestarted
from headrace.runtime.watch.stream import StreamItem
from headrace.testing import harness
from tests.support.apps import ENGINES, url_of
from tests.support.until import until

each_engine = pytest.mark.parametrize("kind", ENGINES)

AT_ONCE = Retry(2, backoff="fixed", initial=0.0, jitter=False)


class Lines:
    """An App with tasks that stream."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.go_on = asyncio.Event()
        self.closed = asyncio.Event()
        self.runs = 0

        @self.app.task
        async def lines(n: int, stem: str = "line") -> AsyncIterator[str]:
            for number in range(1, n + 1):
                yield f"{stem} {number}"

        @self.app.task
        async def slowly(n: int) -> AsyncIterator[int]:
            try:
                for number in range(1, n + 1):
                    yield number
                    if number == n // 2:
                        await self.go_on.wait()
            finally:
                self.closed.set()

        @self.app.task(retry=AT_ONCE)
        async def breaks(n: int, failures: int) -> AsyncIterator[int]:
            self.runs += 1
            for number in range(1, n + 1):
                yield number * self.runs
            if self.runs <= failures:
                raise ValueError(f"run {self.runs}")

        @self.app.task(retry=AT_ONCE)
        async def resumes(ctx: Context, n: int) -> AsyncIterator[int]:
            self.runs += 1
            position = ctx.stream_position
            for number in range(position + 1, n + 1):
                yield number
                if self.runs == 1 and number == n // 2:
                    raise ValueError("half-way")

        self.lines, self.slowly, self.breaks, self.resumes = lines, slowly, breaks, resumes
        self._read()

    def _read(self) -> None:
        @self.app.task
        async def count(rows: Stream[str]) -> int:
            found = 0
            async for row in rows:
                assert isinstance(row, str)
                found += 1
            return found

        @self.app.task
        async def total(numbers: Stream[int]) -> AsyncIterator[int]:
            whole = 0
            async for number in numbers:
                whole += number
                yield whole

        self.count, self.total = count, total


@each_engine
async def test_items_are_read_while_the_job_runs(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        seen = []
        async for number in it.slowly.stream(6):
            seen.append(number)
            if number == 3:
                assert seen == [1, 2, 3]
                it.go_on.set()
        assert seen == [1, 2, 3, 4, 5, 6]


@each_engine
async def test_the_result_is_how_many_items_there_are(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        job = await it.lines.submit(3)
        assert await job.result(timeout=45) == 3
        assert [line async for line in job.stream()] == ["line 1", "line 2", "line 3"]
        assert await it.lines.run(0) == 0
        assert [item async for item in job.stream().items()] == [
            StreamItem(f"line {number}", 1, number) for number in (1, 2, 3)
        ]


@each_engine
async def test_ten_thousand_items(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        seen = [line async for line in it.lines.stream(10_000)]
        assert seen == [f"line {number}" for number in range(1, 10_001)]


@each_engine
async def test_a_reader_goes_on_where_it_left_off(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        job = await it.lines.submit(2500)
        first: list[str] = []
        async with aclosing(job.stream().items()) as items:
            async for item in items:
                first.append(item.value)
                if item.number == 1200:
                    break
        assert len(first) == 1200
        assert [line async for line in job.stream(start=1200)] == [f"line {n}" for n in range(1201, 2501)]
        assert [line async for line in job.stream(start=item)] == [f"line {n}" for n in range(1201, 2501)]
        assert [line async for line in job.stream(start=2500)] == []
        assert (await job.refresh()).status is Status.COMPLETED, "who only looks cancels nothing"


@each_engine
async def test_a_job_that_is_read_by_its_owner_ends_with_the_reading(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        stream = it.slowly.stream(6)
        async for number in stream:
            if number == 2:
                break
        await asyncio.wait_for(it.closed.wait(), 45)
        job = it.app.jobs.handle(stream.id)
        with pytest.raises(JobCancelled):
            await job.result(timeout=45)
        with pytest.raises(JobCancelled):
            _ = [one async for one in job.stream()]


@each_engine
async def test_cancelling_the_reader_cancels_the_job(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        stream, half = it.slowly.stream(6), asyncio.Event()

        async def read() -> None:
            async for number in stream:
                if number == 3:
                    half.set()

        reading = asyncio.create_task(read())
        await asyncio.wait_for(half.wait(), 45)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        with pytest.raises(JobCancelled):
            await it.app.jobs.handle(stream.id).result(timeout=45)


@each_engine
async def test_an_observer_who_leaves_cancels_nothing(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        job = await it.slowly.submit(6)
        async for number in job.stream():
            if number == 2:
                break
        it.go_on.set()
        assert await job.result(timeout=45) == 6


@each_engine
async def test_a_failed_job_raises_behind_its_items(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        seen = []

        async def read() -> None:
            async for number in it.breaks.options(retry=Retry(0)).stream(3, 9):
                seen.append(number)  # noqa: PERF401 - what was read before it raised is kept

        with pytest.raises(JobFailed, match="ValueError: run 1"):
            await read()
        assert seen == [1, 2, 3]


@each_engine
async def test_a_new_attempt_begins_anew_and_says_so(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        job = await it.breaks.submit(2, 1)
        items = [item async for item in job.stream().items()]
        assert [(item.value, item.number) for item in items if item.attempt == 2] == [(2, 1), (4, 2)]
        # What the first attempt kept does not count any more.
        assert [number async for number in job.stream()] == [2, 4]
        assert await job.result(timeout=45) == 2
        # Who has read of the first is told.
        first = StreamItem(1, 1, 1)
        after = [item async for item in job.stream(start=first).items()]
        assert [(item.value, item.attempt, item.restarted) for item in after] == [
            (2, 1, False),
            (2, 2, True),
            (4, 2, False),
        ]
        with pytest.raises(StreamRestarted) as told:
            _ = [number async for number in job.stream(start=first)]
        assert (told.value.id, told.value.attempt) == (job.id, 2)


@each_engine
async def test_a_last_attempt_without_items_leaves_none(kind: str, tmp_path: Path) -> None:
    app, runs = App(url_of(kind, tmp_path)), []

    @app.task(retry=AT_ONCE)
    async def once() -> AsyncIterator[int]:
        runs.append(1)
        if len(runs) == 1:
            yield 1
            raise ValueError
        return

    async with app, app.worker():
        job = await once.submit()
        first = StreamItem(1, 1, 1)
        assert await job.result(timeout=45) == 0
        assert [number async for number in job.stream()] == []
        with pytest.raises(StreamRestarted) as told:  # to whoever has read what does not count
            _ = [item async for item in job.stream(start=first).items()]
        assert told.value.attempt == 2


@each_engine
async def test_an_attempt_that_asks_for_the_position_goes_on(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        job = await it.resumes.submit(10)
        items = [item async for item in job.stream().items()]
        assert [(item.value, item.number) for item in items] == [(number, number) for number in range(1, 11)]
        assert [item.attempt for item in items] == [1] * 5 + [2] * 5
        assert not any(item.restarted for item in items)
        assert await job.result(timeout=45) == 10
        assert [number async for number in job.stream(start=3)] == list(range(4, 11))
        assert [number async for number in job.stream(start=7)] == [8, 9, 10]


@each_engine
async def test_stages_overlap(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        source = await it.slowly.submit(4)
        sums = await it.total.submit(source.stream())
        seen = []
        async for whole in sums.stream():
            seen.append(whole)
            if len(seen) == 2:  # and the source is still at it
                assert (await source.refresh()).status is Status.RUNNING
                it.go_on.set()
        assert seen == [1, 3, 6, 10]


@each_engine
async def test_a_stream_is_an_argument(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        source = await it.lines.submit(5)
        assert await it.count.run(source.stream()) == 5
        assert await it.count.run(rows=source.stream(start=3)) == 2
        named = await it.app.submit("count", {"rows": {"stream": str(source.id)}})
        assert await named.result(timeout=45) == 5


@each_engine
async def test_the_failure_of_a_source_reaches_who_reads_it(kind: str, tmp_path: Path) -> None:
    it = Lines(url_of(kind, tmp_path))
    async with it.app, it.app.worker():
        source = await it.breaks.options(retry=Retry(0)).submit(3, 9)
        sums = await it.total.options(retry=Retry(0)).submit(source.stream())
        with pytest.raises(JobFailed, match=r"JobFailed.*run 1"):
            await sums.result(timeout=45)


@each_engine
async def test_who_reads_a_source_that_begins_anew_begins_anew(kind: str, tmp_path: Path) -> None:
    app, read, runs = App(url_of(kind, tmp_path)), asyncio.Event(), list[int]()

    @app.task(retry=AT_ONCE)
    async def source() -> AsyncIterator[int]:
        runs.append(1)
        for number in range(3 + len(runs)):
            yield number
        if len(runs) == 1:
            await read.wait()
            raise ValueError("once")

    @app.task(retry=AT_ONCE)
    async def total(ctx: Context, numbers: Stream[int]) -> list[int]:
        seen = []
        async for number in numbers:
            seen.append(number)
            if len(seen) == 4 and ctx.attempt == 1:
                read.set()
        return seen

    async with app, app.worker():
        first = await source.submit()
        second = await total.submit(first.stream())
        assert await second.result(timeout=45) == [0, 1, 2, 3, 4]
        job = await second.refresh()
        assert job.attempt == 2
        error = (await app.jobs.history(job.id)).attempts[0].error
        assert error is not None
        assert error.type == "StreamRestarted"


async def test_a_stream_that_outlives_its_app_is_left_behind_in_peace() -> None:
    it = Lines("memory://")
    async with it.app, it.app.worker(grace=0.0):
        items = it.slowly.stream(6).items()
        assert (await anext(items)).value == 1
    await items.aclose()


async def test_what_is_no_stream_is_refused() -> None:
    it = Lines("memory://")
    with pytest.raises(InvalidPayload, match="rows"):
        it.count.draft([1, 2])  # type: ignore[arg-type]
    async with it.app:
        with pytest.raises(InvalidPayload, match="submit"):
            it.count.draft(it.lines.stream(1))
        with pytest.raises(ConfigError, match="start"):
            (await it.lines.submit(1)).stream(start=-1)


async def test_a_plain_function_neither_streams_nor_reads() -> None:
    app = App("memory://")
    with pytest.raises(NotSupported, match="async def"):

        @app.task
        def lines():  # type: ignore[no-untyped-def]
            yield 1

    with pytest.raises(NotSupported, match="rows"):

        @app.task
        def count(rows: Stream[str]) -> int:
            return 0


async def test_an_item_that_is_not_what_was_promised_fails_the_job() -> None:
    app = App("memory://")

    @app.task
    async def lines() -> AsyncIterator[str]:
        yield "one"
        yield 2  # type: ignore[misc]

    async with app, app.worker():
        job = await lines.submit()
        with pytest.raises(JobFailed, match=r"invalid result.*item"):
            await job.result(timeout=45)
        with pytest.raises(JobFailed):
            _ = [line async for line in job.stream()]


async def test_a_direct_call_is_the_generator_itself() -> None:
    it = Lines("memory://")
    assert [line async for line in it.lines(2, stem="x")] == ["x 1", "x 2"]
    assert [number async for number in it.resumes(1)] == [1], "with a Context that leads nowhere"


async def test_under_a_harness() -> None:
    it = Lines("memory://")
    async with harness(it.app) as h:
        source = await it.lines.submit(3)
        counted = await it.count.submit(source.stream())
        await h.drain()
        assert [line async for line in source.stream()] == ["line 1", "line 2", "line 3"]
        assert await counted.result() == 3


@each_engine
async def test_middleware_is_around_a_stream(kind: str, tmp_path: Path) -> None:
    it, seen = Lines(url_of(kind, tmp_path)), []

    @it.app.middleware
    async def note(ctx: Context, call_next):  # type: ignore[no-untyped-def]
        result = await call_next()
        seen.append((ctx.job.task, result))
        return result

    async with it.app, it.app.worker():
        source = await it.lines.submit(3)
        assert await it.count.run(source.stream()) == 3
        await until(lambda: len(seen) == 2)
    assert sorted(seen) == [("count", 3), ("lines", 3)]
