"""Families on PostgreSQL, where an insert and the change of a relative are two transactions at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.change import Applied, Change
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.status import ENDED, Status
from headrace.engine import InsertAnswer, Inserted, Refused
from headrace.engines.postgres import PostgresEngine
from headrace.engines.postgres.store.connection import Connection
from headrace.errors import TransitionRefused, Unavailable
from tests.support.servers.postgres import shared
from tests.support.until import until

Connect = Callable[[], Awaitable[Connection]]


class Undone(Exception):
    """Why a test rolls its transaction back."""


def after(lab: Lab, *parents: Job, task: str = "child") -> Job:
    """A job that waits for these."""
    return lab.job(task, waits=len(parents), after=tuple(job.id for job in parents))


async def insert(lab: Lab, connection: Any, *jobs: Job) -> list[InsertAnswer]:
    """Store jobs in a transaction that is open on a connection."""
    return await lab.transactions.enlist(connection).run(await lab.transactions.inserting(jobs, lab.now))


async def apply(lab: Lab, connection: Any, change: Change) -> Any:
    return await lab.transactions.enlist(connection).run(await lab.transactions.applying(lab.stamp(change), lab.now))


async def waits_for(connection: Connection, other: Any) -> None:
    """Return when a statement waits for what the other connection holds."""
    pid = other.get_server_pid()

    async def blocked() -> bool:
        found = await connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", pid
        )
        return bool(found)

    await until(blocked)


async def test_a_finish_that_waited_for_the_first_child_is_noted(lab: Lab, connect: Connect) -> None:
    """It cannot see the edge, which was committed after it had begun; the job itself tells."""
    watching = await connect()
    parent = await lab.running(await lab.worker(), "parent")
    child = after(lab, parent)
    async with lab.transactions.transaction() as connection:
        [stored] = await insert(lab, connection, child)
        assert isinstance(stored, Inserted)
        done = asyncio.create_task(lab.apply(lab.end(parent, Completed("1"))))
        await waits_for(watching, connection)
    [verdict] = await done
    assert isinstance(verdict, Applied)
    assert verdict.noted
    assert (await lab.get(parent)).status is Status.COMPLETED
    # The note of the end, and that of the child itself.
    assert [change.job.id for change in await lab.process_notes()] == [child.id]


async def test_a_child_of_an_end_that_is_not_committed_is_refused_for_now(lab: Lab) -> None:
    parent = await lab.running(await lab.worker(), "parent")
    child, other = after(lab, parent), lab.job("other")
    grandchild = after(lab, child, task="grandchild")
    async with lab.transactions.transaction() as connection:
        verdict = await apply(lab, connection, lab.end(parent, Completed("1")))
        assert isinstance(verdict, Applied)
        refused, fine, refused_too = await lab.insert(child, other, grandchild)
        assert isinstance(fine, Inserted)
        for answer in (refused, refused_too):
            assert isinstance(answer, Refused)
            assert isinstance(answer.error, Unavailable)
            assert "transaction" in str(answer.error)
    await lab.put_all(child, grandchild)
    assert [change.job.id for change in await lab.process_notes()] == [child.id]


async def test_a_cancel_waits_for_a_child_and_reaches_it(lab: Lab, connect: Connect) -> None:
    watching = await connect()
    parent = await lab.running(await lab.worker(), "parent")
    child = lab.job("child", parent=parent.id, root=parent.id)
    async with lab.transactions.transaction() as connection:
        await insert(lab, connection, child)
        cancel = asyncio.create_task(lab.apply(*filter(None, [actions.cancel(parent, lab.now, lab.rules)])))
        await waits_for(watching, connection)
    assert isinstance((await cancel)[0], Applied)
    await lab.process_notes()
    assert (await lab.get(child)).status is Status.CANCELLED


async def test_a_child_in_the_transaction_that_cancels_its_parent_is_refused(lab: Lab) -> None:
    parent = await lab.running(await lab.worker(), "parent")
    child = lab.job("child", parent=parent.id, root=parent.id)
    async with lab.transactions.transaction() as connection:
        cancel = actions.cancel(parent, lab.now, lab.rules)
        assert cancel is not None
        await apply(lab, connection, cancel)
        [refused] = await insert(lab, connection, child)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, TransitionRefused)
    assert await lab.gone(child)


async def test_children_of_one_parent_do_not_wait_for_each_other(lab: Lab) -> None:
    parent = await lab.running(await lab.worker(), "parent")
    one, two, three = (lab.job("child", parent=parent.id, root=parent.id) for _ in range(3))
    async with asyncio.timeout(45), lab.transactions.transaction() as first, lab.transactions.transaction() as second:
        await insert(lab, first, one)
        await insert(lab, second, two)
        assert isinstance((await lab.insert(three))[0], Inserted)
    assert [isinstance(job, Job) for job in await lab.engine.jobs.get([one.id, two.id, three.id])] == [True] * 3


async def test_what_was_rolled_back_leaves_nothing_to_tell(lab: Lab, schema: str, connect: Connect) -> None:
    parent = await lab.running(await lab.worker(), "parent")
    with suppress(Undone):
        async with lab.transactions.transaction() as connection:
            await insert(lab, connection, after(lab, parent))
            raise Undone
    [verdict] = await lab.apply(lab.end(parent, Completed("1")))
    assert isinstance(verdict, Applied)
    assert not verdict.noted
    looking = await connect()
    for table in ("notes", "waits"):
        assert await looking.fetchval(f"SELECT count(*) FROM {schema}.{table}") == 0


async def test_a_synchronous_connection_on_a_loop_does_not_wait_for_a_relative(lab: Lab) -> None:
    """Whoever holds it may need the loop to let it go."""
    parent = await lab.running(await lab.worker(), "parent")
    child, later = after(lab, parent), lab.job("later", parent=parent.id, root=parent.id)

    def submit(job: Job, steps: Any) -> Any:
        with psycopg.connect(shared().url()) as connection:
            return lab.transactions.enlist(connection).run_blocking(steps)

    async with lab.transactions.transaction() as connection:
        await apply(lab, connection, lab.end(parent, Completed("1")))
        with pytest.raises(Unavailable, match="waits for"):
            submit(child, await lab.transactions.inserting([child], lab.now))
    for job in (child, later):
        [answer] = submit(job, await lab.transactions.inserting([job], lab.now))
        assert isinstance(answer, Inserted)
    assert [change.job.id for change in await lab.process_notes()] == [child.id]


async def test_a_job_that_begins_to_be_waited_for_is_not_pruned_meanwhile(lab: Lab) -> None:
    parent = await lab.stand(Status.COMPLETED, "parent")
    lab.later(10)
    before = dict.fromkeys(ENDED, lab.now)
    first, second = after(lab, parent), after(lab, parent)
    for child in (first, second):  # the second time it is known that it was waited for
        async with lab.transactions.transaction() as connection:
            await insert(lab, connection, child)
            assert await lab.engine.jobs.delete(before) == 0
        assert await lab.engine.jobs.delete(before) == 0
        await lab.process_notes()
    await lab.cancel(await lab.get(first))
    assert await lab.engine.jobs.delete(before) == 1
    await lab.cancel(await lab.get(second))
    assert await lab.engine.jobs.delete(before) == 2


async def test_a_child_that_comes_between_the_two_steps_of_pruning_keeps_its_parent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await lab.stand(Status.COMPLETED, "parent")
    [early] = await lab.put_all(after(lab, parent, task="early"))
    await lab.process_notes()
    await lab.cancel(await lab.get(early))
    late = after(lab, parent, task="late")
    assert isinstance(lab.engine, PostgresEngine)
    hot = lab.engine._hot
    begin, came = hot.transaction, list[InsertAnswer]()

    @asynccontextmanager
    async def transaction() -> AsyncIterator[Connection]:
        """Begins when the first step has seen that the parent was waited for, and that nobody waits any more."""
        monkeypatch.setattr(hot, "transaction", begin)
        came.extend(await lab.insert(late))
        async with begin() as connection:
            yield connection

    monkeypatch.setattr(hot, "transaction", transaction)
    assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now)) == 1
    assert [type(answer) for answer in came] == [Inserted]
    assert await lab.gone(early)
    assert not await lab.gone(parent)
    assert [change.job.status for change in await lab.process_notes()] == [Status.QUEUED], (
        "it is told that its parent completed"
    )
    await lab.cancel(await lab.get(late))
    assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now)) == 2
    assert (await lab.engine.records.ledger()).unaccounted == 0


async def test_a_refused_job_takes_no_key_and_is_nobodys_kin(lab: Lab) -> None:
    missing, here = lab.job("missing"), await lab.put("here")
    stranger = lab.job("keyed", dedup="k", waits=1, after=(missing.id,))
    keyed, twin = (lab.job("keyed", dedup="k", waits=1, after=(here.id,)) for _ in range(2))
    follower = after(lab, stranger, task="follower")
    answers = await lab.insert(stranger, keyed, twin, follower)
    assert [type(answer).__name__ for answer in answers] == ["Refused", "Inserted", "Duplicated", "Refused"]
    assert (await lab.engine.records.ledger()).accepted == 2
