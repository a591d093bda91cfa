"""Lines and profiles: what happens when there is no room for more, and to those who remember what was forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.conformance.lab import Lab
from headrace.core.defaults import Retention, Rules
from headrace.core.limits import profiles
from headrace.engine import Inserted, Refused
from headrace.engines.postgres.store.connection import Connection
from headrace.errors import ConfigError, HeadraceError, Unavailable
from headrace.runtime.clock import SystemClock, SystemDice
from headrace.runtime.host import Host
from headrace.runtime.writes.writer import Writer
from tests.engines.postgres.conftest import Connect
from tests.support.invariants import check_store
from tests.support.servers.schemas import postgres_engine

ROOM = 3


class Hand(SystemClock):
    """A clock that can be put forward by hand."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
async def lab(tmp_path: Path, clock: Hand, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    """A store with little room, that is full."""
    monkeypatch.setattr(profiles, "MAX_PROFILES", ROOM)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", ROOM)
    host, rules = Host(clock, SystemDice(7)), Rules()
    lab = Lab(lambda: postgres_engine(rules, host, tmp_path), host, rules)
    await lab.engine.open()
    for n in range(ROOM):
        await lab.put(f"t{n}")
    yield lab
    await lab.engine.close()


async def refusal(lab: Lab, task: str = "one too many") -> HeadraceError:
    [answer] = await lab.insert(lab.job(task))
    assert isinstance(answer, Refused)
    return answer.error


async def books(user: Connection, schema: str) -> tuple[int, int]:
    """How often lines changed, and were collected."""
    row = await user.fetchrow(
        f"SELECT subqueues_rev, (SELECT last_value FROM {schema}.collections) FROM {schema}.books"
    )
    assert row is not None
    return row[0], row[1]


async def test_a_collection_that_finds_nothing_is_not_made_again_and_again(
    lab: Lab, schema: str, connect: Connect, clock: Hand
) -> None:
    user = await connect()
    before = await books(user, schema)
    for n in range(5):
        assert isinstance(await refusal(lab, f"new{n}"), ConfigError)
    assert await books(user, schema) == before  # what others remember is still good
    # One that is made would have to wait for this transaction.
    transaction = user.transaction()
    await transaction.start()
    await lab.transactions.enlist(user).run(await lab.transactions.inserting([lab.job("t0")], lab.now))
    assert isinstance(await refusal(lab), ConfigError)
    clock.ahead += 61
    assert isinstance(await refusal(lab), Unavailable)
    await transaction.rollback()
    assert isinstance(await refusal(lab), ConfigError)


async def test_room_made_by_another_session_is_used_at_once(lab: Lab, schema: str, connect: Connect) -> None:
    for n in range(5):
        assert isinstance(await refusal(lab, f"new{n}"), ConfigError)
    [held] = await lab.claim(await lab.worker(), tasks=("t0",))
    await lab.finish(await lab.start(held))
    other = lab.engine.another_session()
    await other.open()
    user = await connect()
    before = await books(user, schema)
    [answer] = await other.jobs.insert([lab.job("theirs")], lab.now)
    assert isinstance(answer, Inserted)
    after = await books(user, schema)
    assert after[1] == before[1] + 1
    await lab.put("theirs")
    assert isinstance(await refusal(lab, "t0"), ConfigError)
    await other.close()
    await check_store(lab.engine)


async def test_an_insert_that_is_under_way_delays_a_collection_and_fails_nobody(lab: Lab, connect: Connect) -> None:
    [job, *_] = await lab.claim(await lab.worker(), 1)
    await lab.finish(await lab.start(job))
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    await lab.transactions.enlist(user).run(await lab.transactions.inserting([lab.job("t1")], lab.now))
    for _ in range(2):
        error = await refusal(lab)
        assert isinstance(error, Unavailable)
        assert error.outcome == "refused"
    writer = Writer(lab.engine, lab.host)
    waiting = asyncio.create_task(writer.inserts.insert(lab.job("one too many")))
    await writer.inserts.insert(lab.job("t2"))
    assert not waiting.done()
    await transaction.commit()
    assert isinstance(await waiting, Inserted)
    await writer.close()
    await check_store(lab.engine)


@pytest.mark.parametrize("dedup", [None, "k"])
async def test_steps_made_before_a_collection_that_this_session_has_come_upon_are_refused(
    lab: Lab, connect: Connect, dedup: str | None
) -> None:
    [job] = await lab.claim(await lab.worker(), tasks=("t0",))
    steps = await lab.transactions.inserting([lab.job("t0", dedup=dedup)], lab.now)
    await lab.finish(await lab.start(job))
    await lab.engine.jobs.delete(Retention(completed=0.0, failed=0.0, cancelled=0.0).cutoffs(lab.now))
    await lab.put("one too many", dedup="x")  # made room, and remembers other lines now
    user = await connect()
    async with user.transaction():
        with pytest.raises(Unavailable, match="again") as caught:
            await lab.transactions.enlist(user).run(steps)
        assert caught.value.outcome == "refused"
        assert await user.fetchval("SELECT 1") == 1
        # What is remembered now is as good as before.
        [answer] = await lab.transactions.enlist(user).run(await lab.transactions.inserting([lab.job("t1")], lab.now))
    assert isinstance(answer, Inserted)
    await check_store(lab.engine)


async def test_known_and_new_places_in_one_call_do_not_chase_each_other(lab: Lab) -> None:
    [job] = await lab.claim(await lab.worker(), tasks=("t0",))
    await lab.finish(await lab.start(job))
    async with asyncio.timeout(5):
        answers = await lab.insert(lab.job("t0"), lab.job("new"))
    assert {type(answer) for answer in answers} == {Inserted, Refused}
