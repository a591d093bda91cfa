"""Everything that makes jobs flow, in one App, as it is written: it type-checks, and it runs on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import App, Context, Continuous, Rate, Stream
from tests.support.apps import ENGINES, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine


class Pool:
    """Something that is opened once per worker."""

    receipts: int = 0


class Doc(msgspec.Struct):
    """Something to be indexed."""

    words: int


@pytest.mark.parametrize("kind", ENGINES)
async def test_flow(kind: str, tmp_path: Path) -> None:  # noqa: C901 - one App with one of everything
    app = App(url_of(kind, tmp_path))
    seen = list[str]()

    app.queue("mail", priority=10, max_concurrency=20)
    app.rate("stripe", Rate(100, per=60, kind="sliding"))

    @app.resource
    async def db() -> AsyncIterator[Pool]:
        yield Pool()

    async def pay(customer_id: int, cents: int) -> str:
        return f"{customer_id} paid {cents}"

    @app.task(
        queue="mail",
        max_concurrency=5,
        concurrency_key="customer:{customer_id}",
        max_per_key=1,
        rates=["stripe"],
    )
    async def charge(ctx: Context, customer_id: int, cents: int) -> str:
        pool = ctx.resource(db)
        pool.receipts += 1
        return await ctx.step("charge", pay, customer_id, cents)

    @app.task
    async def lines(path: str) -> AsyncIterator[str]:
        for n in range(5):
            yield f"{path}:{n}"

    @app.task
    async def count(rows: Stream[str]) -> int:
        return len([row async for row in rows])

    @app.bulk(size=100, wait=0.05)
    async def index(docs: list[Doc]) -> list[int | Exception]:
        return [doc.words for doc in docs]

    @app.task(continuous=Continuous(instances=2, cool_down=5))
    async def poll() -> None:
        seen.append("poll")
        await asyncio.sleep(0.05)

    @app.middleware
    async def timed(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(ctx.job.task)
        return await call_next()

    @app.task
    async def report(ctx: Context) -> None:
        seen.append(f"report of {(await app.batches.handle(ctx.job.metadata['batch']).refresh()).tally.completed}")

    @app.task
    async def alert() -> None:
        seen.append("alert")

    @app.task
    async def resize(name: str) -> str:
        return name.upper()

    @app.task
    async def montage(ctx: Context) -> str:
        return "+".join(await ctx.results(resize))

    async with app, app.worker():
        async with app.batch(on_complete=report.draft(), on_failure=alert.draft()) as batch:
            batch.add(charge.draft(7, 500))
        assert await batch.results(timeout=45) == ["7 paid 500"]

        a, b = resize.draft("a.png"), resize.draft("b.png")
        m = montage.options(after=[a, b], after_when="succeeded", on_parent_failure="cancel").draft()
        await app.submit_many([a, b, m])
        assert await montage.handle(m.id).result(timeout=45) == "A.PNG+B.PNG"

        source = await lines.submit("x.csv")
        total = await count.run(source.stream())
        assert total == 5
        assert [item async for item in lines.stream("y.csv")] == [f"y.csv:{n}" for n in range(5)]

        assert await (await index.submit(Doc(3))).result(timeout=45) == 3
        await until(lambda: "poll" in seen and "report of 1" in seen, what="the rest was done")
        assert "alert" not in seen
