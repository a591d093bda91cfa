"""A bad neighbour fails alone: what one caller says in an odd form never makes another's write fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace import App, Context, Cron, Every, Retry
from headrace.core.defaults import Rules
from headrace.core.job import Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.limits.rate import Rate
from headrace.core.status import Status
from headrace.engine import Inserted
from headrace.errors import HeadraceError, Unstorable
from headrace.runtime.host import Host
from tests.support.apps import ENGINES, url_of
from tests.support.hubs import Hubs

pytestmark = [pytest.mark.every_engine, pytest.mark.parametrize("kind", [*ENGINES, "remote"])]

INNOCENT = 60


class Safe(str):
    """As Django's SafeString and Markup are: it stays what it is, whatever is done with it."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def __format__(self, spec: str) -> str:
        return self


class Word(str, Enum):  # noqa: UP042 - there are many of them
    """An enumeration of the old kind, which says something else to ``str()``."""

    NAME = "name"


class Level(IntEnum):
    HIGH = 80


class Number(int): ...


class Share(float): ...


class Moment(datetime):
    """As those of pandas and pendulum."""


class Span(timedelta): ...


class Id(UUID):
    """As that of asyncpg."""


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[App]:
    """An App on an empty store of this kind; ``remote``: through a hub."""
    hubs = None
    if kind == "remote":
        hubs, app = Hubs(), App("memory://")
        from headrace.engines.memory import MemoryEngine

        app._made["engine"] = hubs.engine(folder, Rules(), Host(), lambda: MemoryEngine(Rules(), Host()))
    else:
        app = App(url_of(kind, folder))

    @app.task(name="work")
    async def work(value: Any = None) -> Any:
        return value

    try:
        async with app:
            yield app
    finally:
        if hubs is not None:
            await asyncio.to_thread(hubs.close)


TEXTS = {
    "queue": "q",
    "dedup": "d",
    "request_key": "r",
    "customer": "c",
    "concurrency_key": "k",
}


@pytest.mark.parametrize("text", [Safe("odd"), Word.NAME], ids=["safe", "enum"])
async def test_text_of_another_class_is_text_wherever_it_is_said(kind: str, tmp_path: Path, text: str) -> None:
    async with opened(kind, tmp_path) as app:
        work = app.tasks["work"]
        parent = await work.submit()
        said: list[dict[str, Any]] = [
            *({name: text} for name in TEXTS),
            {"tags": [text]},
            {"metadata": {text: [text, {text: text}]}},
            {"requires": {text: text}},
            {"headers": {text: text}, "query": {text: [text]}, "route": {text: text}, "trace": {text: text}},
            {"retry": Retry(retry_on=[text])},
            {"priority": Level.HIGH},
            {"priority": Number(7), "timeout": Share(9.5), "delay": Span(seconds=0)},
            {"not_before": Moment(2026, 1, 1, tzinfo=UTC), "not_after": Moment(2999, 1, 1, tzinfo=UTC)},
            {"after": [Id(int=parent.id.int)]},
        ]
        plain = [work.submit() for _ in range(INNOCENT)]
        odd = [work._with_options(options).submit() for options in said]
        handles = await asyncio.gather(*plain, *odd)
        for handle, options in zip(handles[INNOCENT:], said, strict=True):
            spec = (await app.jobs.get(handle.id)).spec
            for name in TEXTS.keys() & options.keys():
                assert getattr(spec, name) == str.__str__(text)
        found = await app.jobs.list(queue=text, customer=None, tag=None)
        assert [job.queue for job in found.items] == [str.__str__(text)]
        assert (await app.jobs.get(Id(int=parent.id.int))).id == parent.id


async def test_acts_and_settings_take_them_too(kind: str, tmp_path: Path) -> None:
    text, who = Safe("odd"), Safe("me")
    async with opened(kind, tmp_path) as app:
        work = app.tasks["work"]
        job = await work.submit()
        await app.jobs.handle(job.id).move(text, by=who)
        await app.jobs.handle(job.id).reprioritise(Level.HIGH, by=who)
        await app.jobs.handle(job.id).postpone(Moment(2999, 1, 1, tzinfo=UTC), by=who)
        await app.jobs.handle(job.id).cancel(by=who)
        again = await app.jobs.handle(job.id).rerun(queue=text, by=who)
        assert (await app.jobs.get(again.id)).queue == "odd"
        await app.submit(Safe("work"), {Safe("value"): Safe("x")})
        await app.queues.set(text, priority=Number(3), rates=[text], by=who)
        await app.queues.pause(text, by=who)
        await app.limits.set(text, max_concurrency=Number(3), by=who)
        await app.rates.set(text, Rate(Number(3), per=Share(2)), by=who)
        draft = work.draft()
        await app.schedules.set(text, Cron(Safe("0 2 * * *"), tz=Safe("Europe/Berlin")), draft, by=who)
        await app.schedules.set(Safe("other"), Every(minutes=Number(5), start=Moment(2026, 1, 1, tzinfo=UTC)), draft)
        new = await app.webhooks.add(
            Safe("https://example.com/"), events=[Safe("completed")], tasks=[text], customer=text, description=text
        )
        assert new.webhook.customer == "odd"
        assert {event.by for event in await app.store.audit()} == {"me", None}
        async with app.batch() as batch:
            batch.add(draft)
        await batch.cancel(by=who)
        scope: Any = Safe("submit")
        await app.keys.create(text, [scope], customer=text, tasks=[text], queues=[text], by=who)


async def test_what_handlers_say_does_not_disturb_others(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as app:

        @app.task(retry=Retry(0), name="odd")
        async def odd(ctx: Context, n: int) -> Any:
            ctx.progress(Share(10), Safe("here"), step=Safe("one"), details={Safe("a"): Safe("b")})
            await ctx.step(Safe("name"), lambda: Safe("kept"))
            if n % 2:
                raise ValueError(Safe("so it is"))
            return Safe("well")

        async with app.worker(concurrency=20):
            handles = await asyncio.gather(*(odd.submit(n) for n in range(20)))
            for n, handle in enumerate(handles):
                ended = await handle.ended(timeout=30)
                assert ended is not None
                assert ended.status is (Status.FAILED if n % 2 else Status.COMPLETED)
                assert ended.error is None or ended.error.message == "so it is"


GUILTY: dict[str, dict[str, Any]] = {
    "document": {"metadata": {"k": object()}},
    "text": {"queue": Safe("q"), "metadata": {"k": Safe("x")}},
    "keyed": {"dedup": "one", "metadata": {"k": object()}},
}


@pytest.mark.parametrize("guilty", GUILTY)
async def test_one_that_cannot_be_written_fails_alone_and_is_named(kind: str, tmp_path: Path, guilty: str) -> None:
    async with opened(kind, tmp_path) as app:
        writer, now = app.session.writer, await app.session.writer.now()

        def job(**fields: Any) -> Any:
            return submit(uuid4(), Spec(task="work", created_at=now, **fields), "{}", now)

        # Past the doors, where it would be made plain: whatever comes so far, only its own write fails.
        odd = job(**GUILTY[guilty])
        keyed = "dedup" in GUILTY[guilty]
        jobs = [job(**({"dedup": f"d{n}"} if keyed else {})) for n in range(INNOCENT)]
        jobs.insert(20, odd)
        answers = await asyncio.gather(*map(writer.inserts.insert, jobs), return_exceptions=True)
        failed = [answer for answer in answers if not isinstance(answer, Inserted)]
        assert failed == [answers[20]]
        [error] = failed
        assert isinstance(error, Unstorable)
        assert error.outcome == "refused"
        assert error.ids == (odd.id,)
        assert str(odd.id) in str(error)
        assert sum(one is not None for one in await app.session.engine.jobs.get([one.id for one in jobs])) == INNOCENT
        # Of what is stored together, those are named that are the cause.
        more = [job(), job(**GUILTY["document"]), job()]
        with pytest.raises(Unstorable) as caught:
            await writer.inserts.insert_many(more)
        assert caught.value.ids == (more[1].id,)
        graph = [*more, job(after=(more[0].id,))]
        with pytest.raises(Unstorable) as caught:
            await writer.inserts.insert_many(graph)
        assert caught.value.ids == (more[1].id,)
        each = await writer.inserts.insert_each(more)
        assert [isinstance(one, HeadraceError) for one in each] == [False, True, False]
