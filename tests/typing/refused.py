"""What a user must not write: each line needs its ignore, in both checkers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from headrace import App, Context, Cron, Every, JobHandle, Retry, Stream, Tasks
from headrace.endpoints.fastapi import JobRouter, MadeInWorker, status_router

app = App("memory://")
router = JobRouter(app)


@app.task
async def resize(ctx: Context, image: str, width: int = 800) -> str:
    return image


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
async def lines(path: str) -> AsyncIterator[str]:
    yield path


@app.task
async def total(numbers: Stream[int]) -> int:
    return 0


def stamp(text: str) -> int:
    return len(text)


async def streams_and_steps_are_checked(ctx: Context) -> None:
    lines.stream(1)  # type: ignore[arg-type]
    number: int = await anext(aiter(lines.stream("a")))  # type: ignore[arg-type]
    await total.submit((await lines.submit("a")).stream())  # type: ignore[arg-type]
    await total.submit([number])  # type: ignore[arg-type]
    await ctx.step("stamp", stamp, 1)  # type: ignore[call-overload]
    ctx.step_sync("stamp", stamp)  # type: ignore[call-arg]


async def arguments_are_checked(ctx: Context) -> None:
    await resize.submit()  # type: ignore[call-arg]
    await resize.submit(1)  # type: ignore[arg-type]
    await resize.submit("a", "b")  # type: ignore[arg-type]
    await resize.submit("a", height=1)  # type: ignore[call-arg]
    await resize.submit("a", 1, 2)  # type: ignore[call-arg]
    await resize.submit(ctx, "a")  # type: ignore[arg-type]
    await resize.submit("a", priority=1)  # type: ignore[call-arg]
    await resize.run(b"a")  # type: ignore[arg-type]
    resize.draft(image=1)  # type: ignore[arg-type]
    add.submit_sync("1", 2)  # type: ignore[arg-type]
    add(1)  # type: ignore[call-arg]
    await add.map([1])  # type: ignore[list-item]


async def results_are_checked() -> None:
    wrong: JobHandle[str] = await add.submit(1, 2)  # type: ignore[assignment]
    text: str = await add.run(1, 2)  # type: ignore[assignment]
    await wrong.result(10)  # type: ignore[call-arg]
    takes(text)


def takes(text: str) -> None: ...


def options_are_checked() -> None:
    add.options(prority=1)  # type: ignore[call-arg]
    add.options(priority="urgent")  # type: ignore[arg-type]
    add.options(retry=3)  # type: ignore[arg-type]
    add.options(delay="5s")  # type: ignore[arg-type]
    add.options(on_duplicate="ignore")  # type: ignore[arg-type]
    add.options(name="other")  # type: ignore[call-arg]
    app.task(run_in="thread")  # type: ignore[call-overload]
    app.task(colour="red")  # type: ignore[call-overload]
    app.task(continuous=2)  # type: ignore[call-overload]
    Cron("0 2 * * *", overlap="never")  # type: ignore[arg-type]
    Every(minutes=5, jitter="1s")  # type: ignore[arg-type]
    Retry(3, "fixed")  # type: ignore[call-arg]
    Retry(backoff=lambda retry: 2.0)  # type: ignore[arg-type, misc]
    Retry(backoff=lambda retry, error: "soon")  # type: ignore[arg-type, return-value]
    Tasks(queue="a")  # type: ignore[call-arg]
    App(defaults={"queue": 1})  # type: ignore[arg-type]
    app.lifespan(worker=True, processes=2)  # type: ignore[call-arg]
    app.lifespan(worker=True, concurrency="5")  # type: ignore[arg-type]


def bare(job: str) -> None: ...


async def what_is_around_is_checked(ctx: Context) -> None:
    app.on_success(bare)  # type: ignore[type-var]
    app.middleware(bare)  # type: ignore[type-var]
    app.task(retention={"done": 60})  # type: ignore[dict-item]
    add.options(retention="1h")  # type: ignore[arg-type]
    app.submit_middleware(bare)  # type: ignore[type-var]
    add.draft(1, 2).with_options(prioritee=1)  # type: ignore[call-arg]
    app.resource(bare)  # type: ignore[arg-type]
    app.task(middleware=[bare])  # type: ignore[list-item]
    app.task(on_retry=bare)  # type: ignore[arg-type]
    ctx.resource(bare)  # type: ignore[arg-type]


@app.bulk()
async def index(docs: list[int]) -> list[str | Exception]:
    return [str(doc) for doc in docs]


async def bulk_tasks_are_checked() -> None:
    await index.submit("a")  # type: ignore[arg-type]
    await index.submit([1])  # type: ignore[arg-type]
    number: int = await index.run(1)  # type: ignore[assignment]
    await index(number)  # type: ignore[arg-type]
    app.bulk()(bare)  # type: ignore[arg-type]


async def families_are_checked(ctx: Context) -> None:
    add.options(after=[add])  # type: ignore[list-item]
    add.options(after=5)  # type: ignore[arg-type]
    add.options(after_when="later")  # type: ignore[arg-type]
    add.options(on_parent_failure="retry")  # type: ignore[arg-type]
    texts: list[str] = await ctx.results(add)  # type: ignore[arg-type]
    app.batch().add(texts)  # type: ignore[arg-type]
    app.batch(on_complete=add)  # type: ignore[arg-type]


@dataclass
class Tools(MadeInWorker):
    folder: str


@router.post("/{year}")
async def report(ctx: Context, tools: Tools, title: str, year: int) -> str:
    return title


async def what_is_made_in_the_worker_is_no_part_of_a_submit() -> None:
    await report.submit(Tools("x"), "tea", 2026)  # type: ignore[arg-type, call-arg]
    await report.submit(tools=Tools("x"), title="tea", year=2026)  # type: ignore[call-arg]
    await report.submit("tea")  # type: ignore[call-arg]


def arguments_of_a_router_are_checked() -> None:
    JobRouter(app, prefix=3)  # type: ignore[arg-type]
    JobRouter(app, pre_fix="/x")  # type: ignore[call-arg]
    status_router(app, public=True, tags="x", delete="cancle")  # type: ignore[arg-type]


def a_task_has_no_names_of_other_systems() -> None:
    report.delay("tea")  # type: ignore[attr-defined]
