"""Middleware around submits: every way to submit goes through it, and it may change, refuse and look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace import App, Draft, Every, JobHandle, Retry, Status
from headrace.client.submission.middleware import SubmitNext
from headrace.errors import ConfigError, Duplicate, HeadraceError
from headrace.testing import harness
from tests.support.apps import url_of


class Shop:
    """An App with tasks of each kind, and a middleware that marks what is submitted, and keeps how it was called."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url)
        self.calls: list[list[str]] = []
        self.handles: list[JobHandle[Any]] = []

        @app.submit_middleware
        async def mark(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
            self.calls.append([draft.task for draft in drafts])
            marked = [
                draft.with_options(metadata={**draft.options.get("metadata", {}), "by": "me"}) for draft in drafts
            ]
            handles = await call_next(marked)
            self.handles += handles
            return handles

        @app.task
        async def add(a: int, b: int = 1) -> int:
            return a + b

        @app.task
        async def count(n: int) -> AsyncIterator[int]:
            for i in range(n):
                yield i

        @app.task
        async def parent() -> int:
            return await add.run(1)

        @app.task
        def plain_parent() -> None:
            add.submit_sync(1)

        @app.bulk(wait=0.01)
        async def index(items: list[int]) -> list[int | Exception]:
            return list(items)

        self.add, self.count, self.parent, self.plain_parent, self.index = add, count, parent, plain_parent, index


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop on an empty store, which several threads may use."""
    return Shop(url_of("sqlite", tmp_path))


async def _graph(shop: Shop) -> None:
    first = shop.add.draft(1)
    await shop.app.submit_many([shop.add.options(after=[first]).draft(2), first])


async def _batch(shop: Shop) -> None:
    async with shop.app.batch(on_complete=shop.count.draft(1)) as batch:
        batch.add_many([shop.add.draft(1), shop.index.draft(2)])
    assert [handle.id for handle in batch.handles] == [handle.id for handle in shop.handles]


def _submit_sync(shop: Shop) -> None:
    shop.add.submit_sync(1)
    shop.add.submit_sync(2)  # with the App open for it now


async def _stream(shop: Shop) -> None:
    assert [item async for item in shop.count.stream(2)] == [0, 1]


WAYS: dict[str, tuple[Callable[[Shop], Awaitable[Any]], list[list[str]]]] = {
    "submit": (lambda shop: shop.add.submit(1), [["add"]]),
    "draft": (lambda shop: shop.add.draft(1).submit(), [["add"]]),
    "by name": (lambda shop: shop.app.submit("add", {"a": 1}), [["add"]]),
    "of a stream": (lambda shop: shop.count.submit(1), [["count"]]),
    "of a bulk task": (lambda shop: shop.index.submit(1), [["index"]]),
    "map": (lambda shop: shop.add.map([(1,), (2,)]), [["add", "add"]]),
    "submit_many": (lambda shop: shop.app.submit_many([shop.add.draft(1)]), [["add"]]),
    "graph": (_graph, [["add", "add"]]),
    "batch": (_batch, [["add", "index"]]),
    "run": (lambda shop: shop.add.run(1), [["add"]]),
    "stream": (_stream, [["count"]]),
    "submit_sync": (lambda shop: asyncio.to_thread(_submit_sync, shop), [["add"], ["add"]]),
    "wait": (lambda shop: asyncio.to_thread(lambda: shop.app.wait(shop.add.submit(1))), [["add"]]),
    "child": (lambda shop: shop.parent.run(), [["parent"], ["add"]]),
    "child of a thread": (lambda shop: shop.plain_parent.run(), [["plain_parent"], ["add"]]),
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_submit_goes_through_it(shop: Shop, way: str) -> None:
    submit, calls = WAYS[way]
    async with shop.app, shop.app.worker():
        await submit(shop)
        for handle in shop.handles:
            await handle.result(timeout=45)
            assert (await handle.refresh()).metadata == {"by": "me"}
        stored = len((await shop.app.jobs.list(task=["add", "index", "parent", "plain_parent"])).items)
    assert shop.calls == calls
    assert len(shop.handles) == sum(map(len, calls))
    assert stored == sum(task != "count" for call in calls for task in call)


@pytest.mark.parametrize("way", ["await", "sync"])
async def test_within_a_transaction_too(tmp_path: Path, way: str) -> None:
    shop, thread = Shop(url_of("sqlite", tmp_path)), ContextVar("thread", default="")
    seen: list[str] = []

    @shop.app.submit_middleware
    async def look(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        seen.append(thread.get())
        return await call_next(drafts)

    def submit_sync(end: str) -> JobHandle[int]:
        thread.set("mine")
        connection = apsw.Connection(str(tmp_path / "jobs.db"))
        connection.execute("BEGIN IMMEDIATE")
        handle = shop.add.options(connection=connection).submit_sync(1)
        connection.execute(end)
        connection.close()
        return handle

    async def submit(end: str) -> JobHandle[int]:
        thread.set("mine")
        connection = apsw.Connection(str(tmp_path / "jobs.db"))
        connection.execute("BEGIN IMMEDIATE")
        handle = await shop.add.options(connection=connection).submit(1)
        connection.execute(end)
        connection.close()
        return handle

    async with shop.app:
        for end in ("ROLLBACK", "COMMIT"):
            handle = await (submit(end) if way == "await" else asyncio.to_thread(submit_sync, end))
        [job] = (await shop.app.jobs.list()).items
    assert (job.id, job.metadata) == (handle.id, {"by": "me"})
    assert shop.calls == [["add"], ["add"]]
    assert seen == ["mine", "mine"], "context variables of the submitter are seen"


async def test_what_is_raised_on_a_thread_with_a_connection_comes_out_there(tmp_path: Path) -> None:
    app = App(url_of("sqlite", tmp_path))

    @app.task
    async def add(a: int) -> int:
        return a

    @app.submit_middleware
    async def once(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        if drafts[0].payload_text == '{"a":13}':
            raise ValueError("bad luck")
        return await call_next(drafts)

    def submit() -> None:
        connection = apsw.Connection(str(tmp_path / "jobs.db"))
        connection.execute("BEGIN IMMEDIATE")
        within = add.options(connection=connection, dedup="one", on_duplicate="raise")
        with pytest.raises(ValueError, match="bad luck"):
            within.submit_sync(13)
        within.submit_sync(1)
        with pytest.raises(Duplicate):
            within.submit_sync(2)
        connection.execute("COMMIT")
        connection.close()

    async with app:
        await asyncio.to_thread(submit)
        assert [job.payload for job in (await app.jobs.list()).items] == [{"a": 1}]


async def test_the_first_is_the_outermost_and_refusing_stores_nothing(shop: Shop) -> None:
    order: list[str] = []

    @shop.app.submit_middleware
    async def inner(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        order.append(f"inner sees {drafts[0].options['metadata']}")
        if any(draft.options.get("priority") == 99 for draft in drafts):
            raise PermissionError("not for you")
        return await call_next(drafts)

    async with shop.app:
        await shop.add.submit(1)
        with pytest.raises(PermissionError, match="not for you"):
            await shop.add.options(priority=99).submit(2)
        with pytest.raises(PermissionError):
            await shop.app.submit_many([shop.add.draft(3), shop.add.options(priority=99).draft(4)])
        batch = shop.app.batch()
        batch.add(shop.add.options(priority=99).draft(5))
        with pytest.raises(PermissionError):
            await batch.submit()
        assert [job.payload["a"] for job in (await shop.app.jobs.list()).items] == [1]
    assert order == ["inner sees {'by': 'me'}"] * 4


async def test_options_are_changed_and_the_id_stays(shop: Shop) -> None:
    @shop.app.submit_middleware
    async def route(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        return await call_next([draft.with_options(queue="night", priority=3, delay=3600) for draft in drafts])

    async with shop.app:
        draft = shop.add.options(priority=70, tags=["t"]).draft(1)
        handle = await draft.submit()
        again = await draft.submit()
        job = await handle.refresh()
        with pytest.raises(ConfigError, match="unknown option 'prioritee'"):
            draft.with_options(prioritee=1)  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="belongs to the task"):
            draft.with_options(retry=Retry(backoff=lambda retry, error: 1))
    assert (handle.id, again.id) == (draft.id, draft.id)
    assert (job.queue, job.priority, job.status, job.tags) == ("night", 3, Status.SCHEDULED, ("t",))
    assert draft.options.get("queue") is None, "the draft itself is as it was"


async def test_it_may_answer_without_storing(shop: Shop) -> None:
    known: dict[str, JobHandle[Any]] = {}

    @shop.app.submit_middleware
    async def cached(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        new = {draft.payload_text: draft for draft in drafts if draft.payload_text not in known}
        known.update(zip(new, await call_next(list(new.values())), strict=True))
        return [known[draft.payload_text] for draft in drafts]

    async with shop.app:
        first, second = await shop.add.submit(1), await shop.add.submit(1)
        more = await shop.add.map([(1,), (2,), (2,)])
        assert (await shop.app.stats.counts()).ledger.accepted == 2
    assert [handle.id for handle in (second, *more)] == [first.id, first.id, more[1].id, more[1].id]


@pytest.mark.parametrize("wrong", [None, [], ["job"], [None, None]])
async def test_what_gives_no_handle_for_each_draft_is_told(wrong: Any) -> None:
    shop = Shop("memory://")

    @shop.app.submit_middleware
    async def forgets(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        await call_next(drafts)
        given: list[JobHandle[Any]] = wrong
        return given

    async with shop.app:
        with pytest.raises(HeadraceError, match=r"submit middleware .*forgets: it must return") as raised:
            await shop.add.submit(1)
        # Somebody who submits again after an error must know that there is a job already.
        stored = (await shop.app.jobs.list()).items[0]
        assert f"(stored all the same: {stored.id})" in str(raised.value)


async def test_only_drafts_of_this_app_are_passed_on() -> None:
    shop, other = Shop("memory://"), Shop("memory://")

    @shop.app.submit_middleware
    async def astray(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        return await call_next([other.add.draft(1)])

    async with shop.app, other.app:
        with pytest.raises(ConfigError, match=r"submit middleware .*astray: item 0 belongs to a task of another App"):
            await shop.add.submit(1)
        with pytest.raises(TypeError, match="must be a draft"):
            await shop.app.submit_many([1])  # type: ignore[list-item]


def plain(drafts: Any, call_next: Any) -> Any:
    """No coroutine function."""


async def narrow(drafts: Any) -> Any:
    """Takes too little."""


@pytest.mark.parametrize("fn", [plain, narrow, None, 3])
def test_what_cannot_be_called_around_a_submit_is_refused(fn: Any) -> None:
    with pytest.raises(ConfigError, match="a submit middleware is"):
        App("memory://").submit_middleware(fn)


async def test_what_the_store_submits_by_itself_does_not_pass(shop: Shop) -> None:
    """A schedule, the follow-up of a batch and a rerun: of these no program has a draft at that moment."""
    async with shop.app, shop.app.worker():
        await shop.app.schedules.set("often", Every(hours=1), shop.add.draft(1))
        fired = await shop.app.schedules.trigger("often")
        rerun = await shop.app.jobs.handle((await _ended(shop)).id).rerun()
        assert (await fired.refresh()).metadata == {}
        assert (await rerun.refresh()).metadata == {"by": "me"}, "that of the job that is run again"
    assert shop.calls == [["add"]]


async def _ended(shop: Shop) -> JobHandle[int]:
    job = await shop.add.submit(1)
    await job.result(timeout=45)
    return job


async def test_in_the_harness_too() -> None:
    shop = Shop("sqlite:///never-touched.db")
    async with harness(shop.app) as h:
        await shop.parent.submit()
        await h.drain()
        assert [(job.task, job.metadata) for job in h.submitted] == [("parent", {"by": "me"}), ("add", {"by": "me"})]
        await shop.plain_parent.submit()
        await h.drain()
    assert shop.calls == [["parent"], ["add"], ["plain_parent"], ["add"]]
