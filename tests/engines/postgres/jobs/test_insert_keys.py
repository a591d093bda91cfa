"""Keys that others hold: who waits, who does not, and what comes of it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Literal

import asyncpg
import psycopg
import pytest
from msgspec.structs import replace

from headrace import App
from headrace.conformance.lab import Lab
from headrace.core.status import Status
from headrace.engine import Duplicated, Inserted, Refused
from headrace.engines.postgres.jobs import insert
from headrace.engines.postgres.jobs.rows import held_key
from headrace.engines.postgres.store.connection import Connection
from headrace.errors import Unavailable
from tests.engines.postgres.conftest import Connect
from tests.support.apps import url_of
from tests.support.invariants import check_store
from tests.support.servers.postgres import shared
from tests.support.until import until


async def take(lab: Lab, user: Connection, key: str) -> None:
    """Submit within a transaction that stays open."""
    await user.execute("BEGIN")
    [answer] = await lab.transactions.enlist(user).run(await lab.transactions.inserting([lab.job(dedup=key)], lab.now))
    assert isinstance(answer, Inserted)


async def waits(user: Connection) -> bool:
    """Whether any connection waits for this one."""
    return bool(
        await user.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        )
    )


async def test_a_key_that_stays_busy_is_waited_for_once(
    lab: Lab, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = await connect()
    await take(lab, user, "busy")
    await take(lab, another := await connect(), "too")
    monkeypatch.setattr(insert, "_KEY_LOCK_TIMEOUT_MILLISECONDS", 1)
    [first] = await lab.insert(lab.job(dedup="busy"))
    assert isinstance(first, Refused)
    monkeypatch.setattr(insert, "_KEY_LOCK_TIMEOUT_MILLISECONDS", 600_000)
    async with asyncio.timeout(45):
        for key in ("busy", "too", "busy"):
            free, busy = await lab.insert(lab.job(dedup=f"not {key}"), lab.job(dedup=key))
            assert isinstance(free, Inserted | Duplicated)
            assert isinstance(busy, Refused)
            assert isinstance(busy.error, Unavailable)
    await user.execute("ROLLBACK")
    await another.execute("COMMIT")
    [mine, theirs] = await lab.insert(lab.job(dedup="busy"), lab.job(dedup="too"))
    assert isinstance(mine, Inserted)
    assert isinstance(theirs, Duplicated)
    await check_store(lab.engine)


async def test_a_key_that_is_held_for_a_moment_is_waited_for(
    lab: Lab, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "_KEY_LOCK_TIMEOUT_MILLISECONDS", 600_000)
    user = await connect()
    await take(lab, user, "k")
    waiting = asyncio.create_task(lab.insert(lab.job(dedup="k")))
    await until(lambda: waits(user))
    await user.execute("COMMIT")
    [answer] = await waiting
    assert isinstance(answer, Duplicated)


async def test_a_synchronous_connection_does_not_wait_on_the_thread_of_the_loop(lab: Lab) -> None:
    with psycopg.connect(shared().url()) as first, psycopg.connect(shared().url()) as second:
        one, two = lab.transactions.enlist(first), lab.transactions.enlist(second)
        [answer] = await one.run(await lab.transactions.inserting([lab.job(dedup="k")], lab.now))
        assert isinstance(answer, Inserted)
        second.execute("CREATE TEMP TABLE mine AS SELECT 1 AS n")
        for _ in range(2):
            steps = await lab.transactions.inserting([lab.job(dedup="free"), lab.job(dedup="k")], lab.now)
            with pytest.raises(Unavailable, match="event loop") as caught:
                two.run_blocking(steps)
            assert caught.value.outcome == "refused"
        assert second.execute("SELECT n FROM mine").fetchone() == (1,)  # the transaction is as it was
        first.commit()
        [free, told] = two.run_blocking(
            await lab.transactions.inserting([lab.job(dedup="free"), lab.job(dedup="k")], lab.now)
        )
        assert isinstance(free, Inserted)
        assert told == Duplicated(answer.job)
        second.commit()
        # On a thread of its own it may wait as long as it takes.
        third = lab.transactions.enlist(first)
        await third.run(await lab.transactions.inserting([lab.job(dedup="z")], lab.now))
        waiting = asyncio.create_task(
            asyncio.to_thread(two.run_blocking, await lab.transactions.inserting([lab.job(dedup="z")], lab.now))
        )
        pid = first.info.backend_pid
        await until(
            lambda: shared().execute(f"SELECT 1 FROM pg_stat_activity WHERE {pid} = ANY (pg_blocking_pids(pid))")
        )
        first.commit()
        [late] = await waiting
        assert isinstance(late, Duplicated)
        second.commit()
    await check_store(lab.engine)


async def test_a_key_that_came_between_without_a_lock_is_found_and_nothing_is_left_behind(
    lab: Lab, schema: str, connect: Connect
) -> None:
    holder, wanted = await lab.put(dedup="k"), lab.job(dedup="k")
    user = await connect()
    await user.execute(f"UPDATE {schema}.jobs SET held_key = NULL")
    await user.execute("BEGIN")
    await user.execute(f"UPDATE {schema}.jobs SET held_key = $1 WHERE seq = $2", held_key(wanted), holder.seq)
    other = lab.job(dedup="other")
    inserted = asyncio.create_task(lab.insert(other, wanted))
    await until(lambda: waits(user))
    await user.execute("COMMIT")
    first, second = await inserted
    assert isinstance(first, Inserted)
    assert isinstance(second, Duplicated)
    assert second.job.id == holder.id
    [(bare,)] = await user.fetch(
        f"SELECT count(*) FROM {schema}.bodies WHERE seq NOT IN (SELECT seq FROM {schema}.jobs)"
    )
    assert bare == 0
    assert (await lab.engine.records.ledger()).unaccounted == 0


@pytest.mark.parametrize("level", ["repeatable_read", "serializable"])
@pytest.mark.parametrize("same", ["key", "id"])
async def test_what_a_strict_transaction_cannot_see_fails_as_its_other_writes_would(
    lab: Lab, connect: Connect, level: Literal["repeatable_read", "serializable"], same: str
) -> None:
    user = await connect()
    await lab.put(dedup="warm")
    job = lab.job(dedup="k")
    transaction = user.transaction(isolation=level)
    await transaction.start()
    await user.fetch("SELECT 1 FROM pg_class LIMIT 1")  # this is what it sees from now on
    await lab.put_all(job)
    if same == "key":
        job = lab.job(dedup="k")
    with pytest.raises(asyncpg.SerializationError):
        await lab.transactions.enlist(user).run(await lab.transactions.inserting([job], lab.now))
    await transaction.rollback()


@pytest.mark.parametrize("level", ["repeatable_read", "serializable"])
async def test_a_strict_transaction_takes_a_new_pair_of_a_customer(
    lab: Lab, connect: Connect, level: Literal["repeatable_read", "serializable"]
) -> None:
    user = await connect()
    await lab.put("warm", customer="acme")
    transaction = user.transaction(isolation=level)
    await transaction.start()
    await user.fetch("SELECT 1 FROM pg_class LIMIT 1")  # this is what it sees from now on
    job = lab.job("new", customer="acme")
    [answer] = await lab.transactions.enlist(user).run(await lab.transactions.inserting([job], lab.now))
    assert isinstance(answer, Inserted)
    await transaction.commit()
    assert (await lab.get(job)).task == "new"


async def test_a_job_with_a_past_keeps_it_beside_an_id_that_is_here(lab: Lab) -> None:
    here = await lab.put()
    past = replace(
        lab.job("other"), rev=4, epoch=1, status=Status.COMPLETED, finished_at=lab.now, result_text='"precious"'
    )
    _, answer = await lab.insert(here, past)
    assert isinstance(answer, Inserted)
    stored = await lab.get(past)
    assert (stored.rev, stored.status, stored.result_text) == (4, Status.COMPLETED, '"precious"')
    assert stored.finished_at == lab.now
    assert answer.job == stored


SENDER = """
import asyncio, sys
from headrace import App

app = App(sys.argv[1])

@app.task
async def charge(order: int) -> None: ...

async def main():
    async with app:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        request = charge.options(request_key="order-7")
        for handle in await asyncio.gather(*(request.submit(7) for _ in range(int(sys.argv[2])))):
            print(handle.id, handle.duplicate)

asyncio.run(main())
"""


@pytest.mark.timeout(240)
async def test_of_one_request_sent_by_several_processes_at_once_comes_one_job(tmp_path: Path) -> None:
    url = url_of("postgres", tmp_path)
    async with App(url) as app:
        command = (sys.executable, "-c", SENDER, url, "25")
        senders = [await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE) for _ in range(2)]
        for sender in senders:
            assert sender.stdout is not None
            assert await sender.stdout.readline() == b"ready\n"
        said = await asyncio.gather(*(sender.communicate(b"go\n") for sender in senders))
        answers = [line.split() for out, _ in said for line in out.decode().splitlines()]
        assert len(answers) == 50
        assert len({id for id, _ in answers}) == 1
        assert sorted(duplicate for _, duplicate in answers) == ["False"] + ["True"] * 49
        assert (await app.stats.counts()).ledger.accepted == 1
