"""Submitting within a transaction of one's own, on SQLite: the job is there if and only if that is committed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest

from headrace import App, Context, Duplicate, Job, JobHandle, Retry, Status
from headrace.client.background import close
from headrace.errors import ConfigError, JobNotFound, NotCommitted, NotSupported, SyncInAsync

app = App("memory://")


@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(dedup="key:{key}")
async def keyed(key: str) -> str:
    return key


GATES: dict[str, asyncio.Event] = {}


@app.task(dedup="slow", on_duplicate="replace")
async def slow(n: int) -> int:
    GATES["reached"].set()
    await GATES["going"].wait()
    return n


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def opened(file: Path) -> AsyncIterator[App]:
    with app.override(url=f"sqlite:///{file}"):
        async with app:
            yield app


@pytest.fixture
def connection(opened: App, file: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE orders (number INTEGER)")
    connection.execute("BEGIN IMMEDIATE; INSERT INTO orders VALUES (7)")
    yield connection
    connection.close()


def orders(file: Path) -> int:
    connection = apsw.Connection(str(file))
    try:
        return int(connection.execute("SELECT count(*) FROM orders").get)
    finally:
        connection.close()


async def test_a_commit_makes_both_and_the_job_runs(connection: apsw.Connection, file: Path) -> None:
    handle = await add.options(connection=connection).submit(1, 2)
    assert isinstance(handle, JobHandle)
    assert (handle.status, handle.duplicate, handle.task) == (Status.QUEUED, False, "add")
    assert orders(file) == 0
    connection.execute("COMMIT")
    assert orders(file) == 1
    async with app.worker():
        assert await handle.result(timeout=45) == 3
    assert (await handle.refresh()).status is Status.COMPLETED


async def test_a_rollback_makes_neither(connection: apsw.Connection, file: Path) -> None:
    handle = await add.options(connection=connection).submit(1)
    connection.execute("ROLLBACK")
    with pytest.raises(NotCommitted):
        await handle.refresh()
    assert orders(file) == 0
    assert (await app.stats.counts()).statuses == {}


async def test_waiting_before_the_commit_is_refused_with_the_remedy(connection: apsw.Connection) -> None:
    handle = await add.options(connection=connection).submit(1)
    with pytest.raises(NotCommitted, match="commit") as caught:
        await handle.result(timeout=45)
    assert (caught.value.id, isinstance(caught.value, JobNotFound)) == (handle.id, True)
    for act in (handle.refresh, handle.cancel, handle.retry, handle.rerun, handle.discard, handle.explain):
        with pytest.raises(NotCommitted):
            await act()
    with pytest.raises(NotCommitted):
        await anext(aiter(handle.watch()))
    connection.execute("COMMIT")
    assert [job.status async for job in _first(handle)] == [Status.QUEUED]
    assert "stands in queue" in await handle.explain()
    assert (await handle.cancel()).status is Status.CANCELLED


async def _first(handle: JobHandle[int]) -> AsyncIterator[Job]:
    async for job in handle.watch():
        yield job
        return


async def test_once_seen_a_job_that_is_gone_was_pruned(connection: apsw.Connection, file: Path) -> None:
    handle = await add.options(connection=connection).submit(1)
    connection.execute("COMMIT")
    await handle.refresh()
    connection.execute("DELETE FROM jobs")
    with pytest.raises(JobNotFound) as caught:
        await handle.refresh()
    assert not isinstance(caught.value, NotCommitted)


async def test_many_by_name_and_drafts_are_in_one_transaction(connection: apsw.Connection) -> None:
    within = add.options(connection=connection)
    await within.map([(n,) for n in range(1100)])
    await app.submit("add", {"a": 1}, connection=connection)
    draft = within.draft(5)
    twice = [await draft.submit(), (await app.submit_many([draft]))[0]]
    assert twice[0].id == twice[1].id == draft.id
    assert (await app.stats.counts()).statuses == {}
    connection.execute("COMMIT")
    assert (await app.stats.counts()).statuses == {Status.QUEUED: 1102}


async def test_a_key_that_is_held_fails_nothing(connection: apsw.Connection) -> None:
    within = keyed.options(connection=connection)
    connection.execute("COMMIT")
    holder = await keyed.submit("a")
    connection.execute("BEGIN IMMEDIATE")
    again = await within.submit("a")
    assert (again.duplicate, again.id) == (True, holder.id)
    with pytest.raises(Duplicate) as caught:
        await within.options(on_duplicate="raise").submit("a")
    assert caught.value.job.id == holder.id
    fresh, twin = await within.submit("b"), await within.submit("b")
    assert (twin.duplicate, twin.id) == (True, fresh.id)
    connection.execute("COMMIT")
    assert (await fresh.refresh()).status is Status.QUEUED
    assert (await app.stats.counts()).statuses == {Status.QUEUED: 2}


async def test_a_holder_is_replaced_with_the_commit(connection: apsw.Connection) -> None:
    connection.execute("COMMIT")
    later = keyed.options(delay=3600, on_duplicate="replace")
    holder = await later.submit("a")
    within = later.options(connection=connection, queue="other", priority=90)
    for end, queue, events in (("ROLLBACK", "default", 0), ("COMMIT", "other", 3)):
        connection.execute("BEGIN IMMEDIATE")
        draft = within.draft("a")
        handles = [await draft.submit(), await within.submit("a"), await draft.submit(), await within.submit("a")]
        assert {(handle.id, handle.replaced) for handle in handles} == {(holder.id, True)}
        assert (await app.jobs.get(holder.id)).queue == "default", "nobody sees it before"
        connection.execute(end)
        job = await app.jobs.get(holder.id)
        assert (job.queue, job.priority) == (queue, 90 if events else 50)
        assert len((await app.jobs.history(holder.id)).events) == events, "a repeat of the same draft changes nothing"
    assert (await app.store.verify()).ok


async def test_a_holder_that_runs_lets_go_with_the_commit(connection: apsw.Connection) -> None:
    connection.execute("COMMIT")
    GATES.update(going=(going := asyncio.Event()), reached=(reached := asyncio.Event()))
    async with app.worker():
        first = await slow.submit(1)
        await reached.wait()
        connection.set_busy_timeout(45_000)  # the worker writes, too
        connection.execute("BEGIN IMMEDIATE")
        within = slow.options(connection=connection, delay=3600)
        second, third = await within.submit(2), await within.submit(3)
        assert (second.duplicate, third.id, third.replaced) == (False, second.id, True)
        connection.execute("COMMIT")
        assert (await second.refresh()).payload == {"n": 3}
        going.set()
        assert await first.result(timeout=45) == 1
    assert (await app.store.verify()).ok


# What cannot be done


async def test_no_transaction_is_open(connection: apsw.Connection) -> None:
    connection.execute("ROLLBACK")
    with pytest.raises(ConfigError, match="begin one first"):
        await add.options(connection=connection).submit(1)


async def test_another_sqlite_library_is_refused(opened: App, file: Path) -> None:
    other = sqlite3.connect(":memory:")
    with pytest.raises(NotSupported, match=r"apsw\.Connection, not a sqlite3\.Connection.*locks"):
        await add.options(connection=other).submit(1)
    other.close()


async def test_another_file_is_refused(opened: App, tmp_path: Path) -> None:
    for place in (str(tmp_path / "other.db"), ":memory:"):
        other = apsw.Connection(place)
        other.execute("BEGIN")
        with pytest.raises(ConfigError, match=r"other\.db|in memory"):
            await add.options(connection=other).submit(1)
        other.close()


async def test_a_temporary_table_that_hides_ours_is_refused(connection: apsw.Connection) -> None:
    connection.execute("CREATE TEMP TABLE jobs (mine)")
    with pytest.raises(ConfigError, match="'jobs'"):
        await add.options(connection=connection).submit(1)


async def test_the_memory_engine_has_no_transactions() -> None:
    async with app:
        with pytest.raises(NotSupported, match="memory"):
            await add.options(connection=object()).submit(1)
        with pytest.raises(NotSupported, match="memory"):
            await app.submit_many([add.options(connection=object()).draft(1)])


async def test_nothing_can_be_waited_for_in_a_transaction(connection: apsw.Connection) -> None:
    with pytest.raises(ConfigError, match="before the commit"):
        await add.options(connection=connection).run(1)


async def test_jobs_of_several_transactions_are_not_submitted_together(connection: apsw.Connection) -> None:
    with pytest.raises(ConfigError, match="share one connection"):
        await app.submit_many([add.options(connection=connection).draft(1), add.draft(2)])


# What the user has on their connection stays theirs


async def test_rows_of_another_shape_and_open_cursors_are_no_obstacle(connection: apsw.Connection) -> None:
    connection.row_trace = lambda cursor, row: {"row": row}
    connection.execute("INSERT INTO orders VALUES (8), (9)")
    numbers = []
    for row in connection.execute("SELECT number FROM orders"):
        numbers.append(row)
        await add.options(connection=connection).submit(1)
    assert numbers == [{"row": (7,)}, {"row": (8,)}, {"row": (9,)}]
    assert str(connection.execute("SELECT count(*) FROM temp.sqlite_schema").fetchall()) == "[{'row': (0,)}]"
    connection.execute("COMMIT")
    assert (await app.stats.counts()).statuses == {Status.QUEUED: 3}


async def test_a_write_that_fails_leaves_nothing_half_done(connection: apsw.Connection) -> None:
    connection.execute("CREATE TEMP TRIGGER refuse BEFORE INSERT ON main.labels BEGIN SELECT raise(FAIL, 'no'); END")
    with pytest.raises(apsw.ConstraintError, match="no"):
        await add.options(connection=connection, tags=["t"]).submit(1)
    connection.execute("DROP TRIGGER refuse")
    kept = await add.options(connection=connection).submit(2)
    connection.execute("COMMIT")
    assert [job.id for job in (await app.jobs.list()).items] == [kept.id]
    assert (await app.store.doctor())[0].level != "fail"


# Without an event loop


def test_a_connection_is_used_on_the_thread_of_its_owner(file: Path) -> None:
    threads = []
    try:
        with app.override(url=f"sqlite:///{file}"):
            app.wait(app.stats.counts())
            connection = apsw.Connection(str(file))

            def trace(*call: object) -> bool:
                threads.append(threading.current_thread())
                return True

            connection.exec_trace = trace
            connection.execute("BEGIN IMMEDIATE")
            within = add.options(connection=connection)
            one, other = within.submit_sync(1), within.draft(2).submit_sync()
            with pytest.raises(NotCommitted):
                app.wait(one.refresh())
            with pytest.raises(ConfigError, match="submit_sync"):
                app.wait(within.submit(3))
            connection.execute("COMMIT")
            assert app.wait(one.refresh()).status is app.wait(other.refresh()).status is Status.QUEUED
            connection.close()
    finally:
        close()
    assert set(threads) == {threading.current_thread()}


async def test_with_an_event_loop_it_is_awaited(connection: apsw.Connection) -> None:
    with pytest.raises(SyncInAsync):
        add.options(connection=connection).submit_sync(1)


# From a handler


async def test_a_handler_submits_within_a_transaction(file: Path) -> None:
    own = App(f"sqlite:///{file}")

    @own.task
    async def child() -> str:
        return "done"

    @own.task
    async def parent(ctx: Context, fail: bool) -> str:
        connection = apsw.Connection(str(file))
        try:
            connection.execute("BEGIN IMMEDIATE")
            handle = await child.options(connection=connection).submit()
            if fail:
                raise ValueError("after the submit, before the commit")
            connection.execute("COMMIT")
            return str(handle.id)
        finally:
            connection.close()

    async with own, own.worker():
        id = await asyncio.wait_for(parent.run(False), 45)
        assert await own.jobs.handle(id).result(timeout=45) == "done"
        failed = await parent.options(retry=Retry(max_retries=0)).submit(True)
        with pytest.raises(Exception, match="before the commit"):
            await failed.result(timeout=45)
        assert len((await own.jobs.list(task="child")).items) == 1
