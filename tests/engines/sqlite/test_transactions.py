"""Transactions that are shared with the user on SQLite: the engine's own, and what is read from the verbs' triggers."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.limits import profiles
from headrace.engine import Inserted, Refused
from headrace.engine.bus import Hint, Topic
from headrace.engines.sqlite import transactions
from headrace.engines.sqlite.store.connection import unfolded
from headrace.errors import ConfigError, Unavailable
from tests.support.until import until


async def put(lab: Lab, connection: apsw.Connection, *options: dict[str, Any]) -> list[Any]:
    jobs = [lab.job(**one) for one in options or ({},)]
    insert = await lab.transactions.inserting(jobs, lab.now)
    return list(lab.transactions.enlist(connection).run_blocking(insert))


async def test_nobody_else_waits_on_the_loop_for_the_lock(lab: Lab, file: Path) -> None:
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    ticks = 0

    async def begin() -> None:
        async with lab.transactions.transaction() as connection:
            await put(lab, connection)

    waiting = asyncio.create_task(begin())
    while ticks < 20:
        await asyncio.sleep(0.01)
        ticks += 1
    assert not waiting.done()
    other.execute("COMMIT")
    await waiting
    assert (await lab.engine.records.ledger()).accepted == 1
    other.close()


async def test_whoever_leaves_while_waiting_for_the_lock_leaves_no_lock(lab: Lab, file: Path) -> None:
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")

    async def begin() -> None:
        async with lab.transactions.transaction():
            raise AssertionError("it is locked")

    for pause in (0.0, 0.001, 0.02, 0.1):
        waiting = asyncio.create_task(begin())
        await asyncio.sleep(pause)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
    other.execute("COMMIT")
    other.execute("BEGIN IMMEDIATE; COMMIT")
    other.close()
    await lab.put()


async def test_a_lock_that_stays_is_said(lab: Lab, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "LOCK_TIMEOUT_SECONDS", 0.2)
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked") as caught:
        async with lab.transactions.transaction():
            raise AssertionError("it is locked")
    assert caught.value.outcome == "refused"
    other.close()


async def test_a_user_who_commits_by_hand_is_no_error(lab: Lab) -> None:
    async with lab.transactions.transaction() as connection:
        await put(lab, connection)
        connection.execute("COMMIT")
    with suppress(ZeroDivisionError):
        async with lab.transactions.transaction() as connection:
            connection.execute("ROLLBACK")
            raise ZeroDivisionError
    assert (await lab.engine.records.ledger()).accepted == 1


async def test_the_bus_says_when_jobs_were_committed(lab: Lab) -> None:
    heard: list[Hint] = []
    unlisten = lab.engine.bus.listen(frozenset({Topic.READY}), heard.append)
    async with lab.transactions.transaction() as connection:
        connection.row_trace = lambda cursor, row: {"row": row}
        connection.execute("CREATE TABLE mine (a)")
    async with lab.transactions.transaction() as connection:
        await put(lab, connection)
        assert heard == []
    await until(lambda: heard)
    assert heard == [Hint(Topic.READY)]
    unlisten()


async def test_a_profile_too_many_is_refused_and_the_rest_is_stored(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "MAX_PROFILES", 2)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 2)
    await lab.put("a")
    await lab.put("b")
    async with lab.transactions.transaction() as connection:
        refused, stored = await put(lab, connection, {"task": "c"}, {"task": "a"})
    assert (type(refused), type(stored)) == (Refused, Inserted)
    assert isinstance(refused.error, ConfigError)
    assert (await lab.engine.records.ledger()).accepted == 3


async def test_room_is_made_where_profiles_are_not_needed_any_more(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "MAX_PROFILES", 1)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 1)
    worker = await lab.worker()
    await lab.finish(await lab.running(worker, "a"))
    async with lab.transactions.transaction() as connection:
        [stored] = await put(lab, connection, {"task": "b"})
    assert isinstance(stored, Inserted)
    [taken] = await lab.claim(worker)
    assert taken.id == stored.job.id
    # What the session remembered of lines was collected under its hands.
    assert [type(answer) for answer in await lab.insert(lab.job("b"))] == [Inserted]


async def test_a_line_that_was_rolled_back_is_not_remembered(lab: Lab) -> None:
    with suppress(ZeroDivisionError):
        async with lab.transactions.transaction() as connection:
            await put(lab, connection, {"task": "new", "queue": "q"})
            raise ZeroDivisionError
    other = await lab.put("other", queue="elsewhere")
    job = await lab.put("new", queue="q")
    taken = await lab.claim(await lab.worker(), tasks=("new",))
    assert [one.id for one in taken] == [job.id]
    assert (await lab.get(other)).queue == "elsewhere"


async def test_the_statements_are_those_of_the_triggers(lab: Lab) -> None:
    def parts(name: str) -> list[str]:
        return [part for part in re.sub(r"--[^\n]*", "", unfolded(name)).split(";") if part.strip()]

    insert = parts("insert_rows")
    assert [one.split("(")[0].split(" SET")[0].strip() for one in insert] == [
        "UPDATE books",
        "INSERT INTO jobs",
        "INSERT INTO bodies",
        "INSERT INTO labels",
        "UPDATE bodies",
        "INSERT OR IGNORE INTO subqueue_blocks",
        "INSERT OR IGNORE INTO time_blocks",
        "UPDATE books",
    ]
    apply = parts("apply_row")
    assert [one.split("(")[0].split(" SET")[0].strip() for one in apply] == [
        "INSERT INTO notes",
        "UPDATE jobs",
        "INSERT INTO ends",
        "INSERT INTO attempts",
        "INSERT INTO events",
    ]
    for statement in (*insert, *apply):
        assert "new." not in statement
        assert "$1" in statement or statement.strip().startswith("UPDATE books SET accepted")


async def test_a_job_whose_order_number_nobody_told_is_found(lab: Lab) -> None:
    job = await lab.running(await lab.worker())
    change = lab.stamp(lab.end(replace(job, seq=0), Completed("1")))
    async with lab.transactions.transaction() as connection:
        lab.transactions.enlist(connection).run_blocking(await lab.transactions.applying(change, lab.now))
    assert (await lab.get(job)).result == 1


async def test_a_write_does_not_wait_for_the_hand_of_the_engine(lab: Lab, file: Path) -> None:
    # The user's lock keeps every other writer out: what is new to the session must not be left to one of those.
    own = apsw.Connection(str(file))
    own.execute("BEGIN IMMEDIATE")
    await put(lab, own, {"task": "never seen", "requires": {"gpu": True}})
    own.execute("COMMIT")
    own.close()
    assert (await lab.engine.records.ledger()).accepted == 1
