"""Transactions of the user's that stay open: they delay what they must, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from headrace import App, Status
from headrace.conformance.lab import Lab
from headrace.engine import Inserted
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import url_of
from tests.support.until import until

app = App("memory://")


@app.task
async def plain(n: int = 0) -> int:
    return n


@app.task(dedup="key:{key}")
async def keyed(key: str) -> str:
    return key


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[App]:
    with app.override(url=url_of(tmp_path)):
        async with app:
            yield app


class ByAsyncpg:
    """A transaction that its user ends when it pleases."""

    async def begin(self) -> Any:
        self.connection = await asyncpg.connect(shared().url())
        self._transaction = self.connection.transaction()
        await self._transaction.start()
        return self.connection

    async def commit(self) -> None:
        await self._transaction.commit()
        await self.connection.close()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self.connection.close()


class ByPsycopg:
    async def begin(self) -> Any:
        self.connection = await psycopg.AsyncConnection.connect(shared().url())
        return self.connection

    async def commit(self) -> None:
        await self.connection.commit()
        await self.connection.close()

    async def rollback(self) -> None:
        await self.connection.rollback()
        await self.connection.close()


@pytest.fixture(params=[ByAsyncpg, ByPsycopg])
def user(request: pytest.FixtureRequest) -> ByAsyncpg | ByPsycopg:
    """Somebody with a transaction of their own."""
    made: ByAsyncpg | ByPsycopg = request.param()
    return made


async def answered_meanwhile(blocked: asyncio.Task[Any]) -> None:
    """Other submits, with keys and without, one by one and many at once, are answered while one is not."""
    for turn in range(20):
        await plain.submit(turn)
        handle = await keyed.submit(f"other{turn}")
        assert not handle.duplicate
        assert (await keyed.submit(f"other{turn}")).duplicate
    await plain.map([(n,) for n in range(500)])
    await keyed.map([(f"many{n}",) for n in range(500)])
    # Also in one write with the one that waits.
    handles = await asyncio.gather(*(keyed.submit(f"at once {n}") for n in range(100)))
    assert not any(handle.duplicate for handle in handles)
    assert not blocked.done()


async def test_an_open_transaction_delays_only_submits_of_its_key_until_it_is_committed(
    opened: App, user: ByAsyncpg | ByPsycopg
) -> None:
    first = await keyed.options(connection=await user.begin()).submit("k")
    blocked = asyncio.create_task(keyed.submit("k"))
    await answered_meanwhile(blocked)
    await asyncio.sleep(2)  # long enough for every pause between two tries to have grown
    await answered_by_a_worker()
    assert not blocked.done()
    await user.commit()
    handle = await blocked
    assert (handle.duplicate, handle.id) == (True, first.id)


async def answered_by_a_worker() -> None:
    """Work goes on beside the open transaction."""
    handle = await plain.submit(7)
    async with app.worker():
        assert await handle.result(timeout=30) == 7


async def test_after_a_rollback_the_one_that_waited_is_stored(opened: App, user: ByAsyncpg | ByPsycopg) -> None:
    first = await keyed.options(connection=await user.begin()).submit("k")
    blocked = asyncio.create_task(keyed.submit("k"))
    waiting_too = asyncio.create_task(keyed.map([("k",), ("unrelated",)]))
    await asyncio.sleep(1)
    await user.rollback()
    handle, (other, unrelated) = await blocked, await waiting_too
    assert handle.id == other.id != first.id
    assert {handle.duplicate, other.duplicate} == {True, False}
    assert not unrelated.duplicate
    assert (await handle.refresh()).status is Status.QUEUED


async def test_the_end_of_a_job_in_an_open_transaction_frees_its_key_with_the_commit(
    lab: Lab, connect: Callable[[], Awaitable[Any]]
) -> None:
    """Inserts of the key wait for the outcome: taken as long as it is not committed, free afterwards."""
    from headrace.core.attempt import Completed
    from headrace.runtime.writes.writer import Writer

    writer = Writer(lab.engine, lab.host)
    job = await lab.running(await lab.worker(), dedup="k")
    done = lab.stamp(lab.end(job, Completed()))
    connection = await connect()
    transaction = connection.transaction()
    await transaction.start()
    await lab.transactions.enlist(connection).run(await lab.transactions.applying(done, lab.now))
    blocked = asyncio.create_task(writer.inserts.insert(lab.job(dedup="k")))
    for at in range(10):
        assert isinstance(await writer.inserts.insert(lab.job(dedup=f"other{at}")), Inserted)
    assert not blocked.done()
    await transaction.commit()
    assert isinstance(await blocked, Inserted)
    await writer.close()


async def test_transactions_lent_to_handlers_leave_the_session_its_own_connections(lab: Lab) -> None:
    """However many handlers are in a block of ``ctx.transaction()`` just now."""
    async with AsyncExitStack() as stack:
        lent = [asyncio.create_task(stack.enter_async_context(lab.transactions.transaction())) for _ in range(12)]
        await until(lambda: sum(task.done() for task in lent) >= 2)
        async with asyncio.timeout(45):
            worker = await lab.worker()
            job = await lab.put(dedup="k")
            assert [row.info.id for row in await lab.engine.workers.list()] == [worker]
            assert [one.id for one in await lab.claim(worker)] == [job.id]
            assert (await lab.engine.jobs.overdue(lab.now)).jobs == ()
            assert await lab.engine.documents.settings() == []
            assert (await lab.engine.records.history(job.id)).attempts == ()
        for task in lent:
            task.cancel()
        await asyncio.gather(*lent, return_exceptions=True)
