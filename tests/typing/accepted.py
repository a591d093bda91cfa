"""What a user may write, and the types it has: read by the type checkers, never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from headrace import App, Context, Continuous, Cron, Draft, Every, Job, JobHandle, Retry, Status, Stream, Tasks
from headrace.client.batch import BatchHandle
from headrace.client.handle import StreamHandle
from headrace.client.submission.middleware import SubmitNext
from headrace.client.task import AsyncTask
from headrace.core.audit import Audited
from headrace.core.entry import LogLine
from headrace.core.explain.explanation import Explanation
from headrace.core.query import Page
from headrace.core.updates import Changed
from headrace.runtime.watch.stream import StreamItem
from headrace.worker.execution.hooks import CallNext
from headrace.worker.execution.resources import Resource

app = App("memory://", defaults={"queue": "all", "timeout": None})


@dataclass
class Options:
    crop: bool = False


@app.task
async def resize(ctx: Context, image: str, width: int = 800) -> dict[str, str | int]:
    return {"image": image, "width": width}


@app.task(retry=Retry(max_retries=5), timeout=timedelta(minutes=1), queue="images", priority=70)
async def crop(image: str, *, options: Options | None = None) -> bytes:
    return b""


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(run_in="process", name="maths.power", aliases=["pow"])
def power(ctx: Context, base: float, exponent: float = 2.0) -> float:
    return base * exponent


@app.task(schedule=Cron("0 2 * * *", tz="Europe/Berlin"))
async def nightly() -> None: ...


@app.task(schedule=Every(minutes=5), dedup="often")
def often(ctx: Context) -> None: ...


@app.task(schedule=Every(hours=1, start=datetime(2026, 1, 1, tzinfo=UTC), jitter=timedelta(minutes=1), overlap="wait"))
async def hourly() -> None: ...


@app.task(continuous=Continuous(instances=2, cool_down=timedelta(seconds=5)))
async def poll() -> None: ...


images = app.task(queue="images")


@images
async def thumbnail(image: str) -> str:
    return image


@images(priority="high")
def urgent(image: str) -> str:
    return image


@app.task
async def lines(path: str, *, encoding: str = "utf-8") -> AsyncIterator[str]:
    yield path


@app.task(queue="files")
async def numbers(ctx: Context, n: int) -> AsyncIterator[int]:
    for number in range(ctx.stream_position, n):
        yield number


@app.task
async def count(rows: Stream[str], limit: int = 10) -> int:
    found = 0
    async for row in rows:
        assert_type(row, str)
        found += 1
    return found


tasks = Tasks(prefix="billing.")


@tasks.task
async def charge(ctx: Context, customer: UUID, cents: int) -> str:
    async with ctx.transaction() as tx:
        assert_type(tx.complete("paid"), None)
    assert_type(await ctx.complete("paid", connection=object()), None)
    return ""


# A first parameter that takes anything takes a Context too, and still is not one.


@app.task
def anything(value: object) -> int:
    return 1


@app.task
async def whatever(value: Any, more: int) -> int:
    return 1


def the_functions_signature_is_the_tasks() -> None:
    assert_type(add.draft(1, b=2), Draft[int])
    assert_type(add(1, 2), int)
    assert_type(power(2.0), float)
    here: Coroutine[Any, Any, dict[str, str | int]] = resize("a.png")
    here.close()
    assert_type(nightly.draft(), Draft[None])
    assert_type(often.draft(), Draft[None])
    assert_type(thumbnail.draft("a"), Draft[str])
    assert_type(urgent.draft(image="a"), Draft[str])
    assert_type(anything.draft("a"), Draft[int])
    assert_type(anything.draft(value=1), Draft[int])
    whatever.draft("a", more=1)  # its type is known to one of the checkers only: Any fits every overload


async def results_have_the_functions_type() -> None:
    assert_type(await resize.submit("cat.png", width=320), JobHandle[dict[str, str | int]])
    assert_type(await (await resize.submit(image="cat.png")).result(timeout=10), dict[str, str | int])
    assert_type(await crop.run("a", options=Options()), bytes)
    assert_type(await add.map([(1, 2), {"a": 1, "b": 2}]), list[JobHandle[int]])
    assert_type(add.handle("01a1de66-1cb8-7001-8872-ef106e39d070"), JobHandle[int])
    assert_type(await charge.submit(UUID(int=1), 500), JobHandle[str])
    assert_type(add.submit_sync(1, 2), JobHandle[int])
    assert_type(app.wait(add.submit(1, 2)), JobHandle[int])
    assert_type(app.wait(add.run(1, 2)), int)


async def streams_have_the_type_of_their_items() -> None:
    source = await lines.submit("a.csv", encoding="ascii")
    assert_type(source, StreamHandle[str])
    assert_type(source.stream(), Stream[str])
    assert_type(await source.result(), int)
    assert_type(await numbers.run(3), int)
    assert_type(numbers.draft(3), Draft[int])
    assert_type(await count.run(source.stream(start=3)), int)
    async for line in lines.options(priority=1).stream("a.csv"):
        assert_type(line, str)
    async for item in numbers.stream(3).items():
        assert_type(item, StreamItem[int])
        assert_type(item.value, int)
    async for number in numbers(3):
        assert_type(number, int)
    assert_type(lines.handle("01a1de66-1cb8-7001-8872-ef106e39d070").stream(), Stream[str])
    async for line_of_log in source.logs(follow=True):
        assert_type(line_of_log, LogLine)


async def pay(customer: int, cents: int = 0) -> bytes:
    return b""


def stamp(text: str) -> int:
    return len(text)


async def steps_have_the_type_of_their_function(ctx: Context) -> None:
    assert_type(await ctx.step("pay", pay, 1, cents=2), bytes)
    assert_type(await ctx.step("stamp", stamp, "a"), int)
    assert_type(ctx.step_sync("stamp", stamp, text="a"), int)


async def options_keep_the_type() -> None:
    later = add.options(
        queue="q",
        priority=90,
        retry=Retry(backoff=[5, timedelta(seconds=15)]),
        timeout=None,
        delay=timedelta(hours=1),
        not_after=datetime(2030, 1, 1, tzinfo=UTC),
        dedup="sum",
        on_duplicate="raise",
        tags=["a"],
        metadata={"a": [1]},
        requires={"gpu": {"min": 1}},
        customer="c",
    )
    assert_type(await later.submit(1, 2), JobHandle[int])
    assert_type(resize.options(priority="normal").options(delay=0.2).draft("a"), Draft[dict[str, str | int]])


async def handles_speak_of_jobs(handle: JobHandle[int]) -> None:
    assert_type(handle.id, UUID)
    assert_type(handle.task, str | None)
    assert_type(handle.duplicate, bool)
    assert_type(handle.last, Job | None)
    assert_type(handle.status, Status | None)
    assert_type(await handle.refresh(), Job)
    assert_type(handle.watch(), AsyncIterator[Job])
    async with app.jobs.feed(task="a", status=["failed", Status.COMPLETED], parent=handle.id) as feed:
        async for changed in feed:
            assert_type(changed, Changed)
            assert_type(changed.jobs, tuple[Job, ...])
    assert_type(await handle.rerun(), JobHandle[int])
    assert_type(await handle.rerun(payload={"a": 1}, by="ann", priority=9, delay=timedelta(hours=1)), JobHandle[int])
    assert_type(await handle.cancel(), Job)
    assert_type(await handle.retry(delay=timedelta(seconds=5), by="ann"), Job)
    assert_type(await handle.postpone(timedelta(hours=1)), Job)
    assert_type(await handle.postpone(datetime.now(UTC), by="ann"), Job)
    assert_type(await handle.run_now(), Job)
    assert_type(await handle.move("slow"), Job)
    assert_type(await handle.reprioritise(90), Job)
    assert_type(await handle.resolve(error="by hand"), Job)
    takes_more(handle)  # what is only read may be read as more


def takes_more(handle: JobHandle[int | None]) -> None: ...


async def the_app_works_with_anything() -> None:
    async with app, app.worker(concurrency=10, queues=["images"], burst=True, grace=timedelta(seconds=1)) as worker:
        assert_type(worker.id, UUID)
        await worker.run(signals=False)
    app.lifespan(worker=True, concurrency=10, queues=["images"], burst=True, grace=timedelta(seconds=1))
    app.worker(offers={"gpu_memory_gb": 24, "regions": ["eu"]}, tasks=[resize, "add"])
    assert_type(await app.workers.explain(worker.id), Explanation)
    assert_type(await app.store.audit(5), list[Audited])
    assert_type(
        await app.jobs.handle("01990000-0000-7000-8000-0000deadbeef").rerun(payload={"a": 1}, queue="slow"),
        JobHandle[Any],
    )
    assert_type(await app.submit("resize", {"image": "a"}, priority="system"), JobHandle[Any])
    assert_type(await app.submit_many([add.draft(1, 2), crop.draft("a")]), list[JobHandle[Any]])
    assert_type(await app.jobs.list(status=[Status.FAILED, "cancelled"]), Page[Job])
    assert_type(poll, AsyncTask[[], None])
    assert_type(await app.schedules.preview("nightly", 3), list[datetime])
    assert_type(await app.schedules.preview(Cron("0 2 * * *")), list[datetime])
    assert_type((await app.schedules.set("poll-7", Continuous(), poll.draft())).skipped, int)
    with app.override(url="memory://") as same:
        assert_type(same, App)


def make(direct: AsyncTask[[str], int]) -> JobHandle[int]:
    return direct.submit_sync("a")


# What is around tasks, after them, and shared by them.


@app.middleware
async def timed(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    return await call_next()


async def traced(ctx: Context, call_next: CallNext) -> int:
    assert_type(await timed(ctx, call_next), Any)
    return 1


@app.on_success
async def praise(job: Job) -> None: ...


@app.on_failed
def blame(job: Job) -> str:
    return job.task


@app.resource
async def db() -> AsyncIterator[dict[str, int]]:
    yield {}


@app.resource
def cache() -> Iterator[list[str]]:
    yield []


@app.resource
@asynccontextmanager
async def session() -> AsyncGenerator[bytes, None]:
    yield b""


@tasks.resource
@contextmanager
def folder() -> Generator[str, None, None]:
    yield ""


@app.task(retention={"completed": 60, "failed": timedelta(days=90)})
async def brief() -> None:
    """Kept in its own way."""


brief.options(retention=timedelta(hours=1))


@app.submit_middleware
async def stamped(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
    """Around every submit."""
    assert_type(drafts[0].with_options(priority="low"), Draft[Any])
    return await call_next([draft.with_options(tags=["t"]) for draft in drafts])


def waits(retry: int, error: Exception) -> float | timedelta:
    """A backoff that is a function."""
    return timedelta(seconds=retry)


assert_type(Retry(backoff=waits).function, Callable[[int, Exception], float | timedelta] | None)
Retry(backoff=lambda retry, error: 2.0**retry if isinstance(error, OSError) else 60)


@app.task(middleware=[timed, traced], on_success=praise, on_retry=[blame, praise], on_cancelled=lambda job: None)
async def surrounded(ctx: Context) -> int:
    assert_type(db, Resource[dict[str, int]])
    assert_type(ctx.resource(db), dict[str, int])
    assert_type(ctx.resource(cache), list[str])
    assert_type(ctx.resource(session), bytes)
    assert_type(ctx.resource(folder), str)
    async with db.open() as opened:
        assert_type(opened, dict[str, int])
    assert_type(blame(ctx.job), str)  # what is registered stays what it was
    return 1


# One job for each item, one call for many.


@app.bulk(size=100, wait=0.05, queue="docs")
async def index(docs: list[Options]) -> list[int | Exception]:
    return [1 for _ in docs]


@tasks.bulk()
async def measure(ctx: Context, names: list[str]) -> list[float]:
    return [0.0 for _ in names]


async def bulk_tasks_take_one_item() -> None:
    assert_type(await index.submit(Options()), JobHandle[int])
    assert_type(await measure.run("a"), float)
    assert_type(await index.options(priority=3).run(Options()), int)
    assert_type(await measure(["a", "b"]), Sequence[float | Exception])


# Families.


@app.task
async def montage(ctx: Context) -> None:
    assert_type(await ctx.results(crop), list[bytes])
    assert_type(await ctx.results(add), list[int])


async def jobs_wait_for_others(handle: JobHandle[int], job: Job) -> None:
    first = add.draft(1, 2)
    assert_type(montage.options(after=[first, handle, job, job.id, "id"], after_when="ended").draft(), Draft[None])
    async with app.batch(on_complete=montage.draft(), on_failure=montage.draft()) as batch:
        assert_type(batch.add(first), Draft[int])
    assert_type(batch, BatchHandle)
    assert_type(await batch.results(timeout=timedelta(seconds=5)), list[Any])
    assert_type((await batch.refresh()).tally.completed, int)
    async for one in batch.as_completed():
        assert_type(one, JobHandle[Any])
    assert_type(await batch.cancel(by="me"), int)
