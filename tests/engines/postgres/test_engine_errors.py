"""What goes wrong is said in plain words, and strikes nobody but whom it concerns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from headrace import App
from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed, ErrorInfo, Failed, Progress
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.execution import progress
from headrace.core.query import Filter
from headrace.engine import Duplicated, Inserted
from headrace.engines.postgres import PostgresEngine
from headrace.errors import ConfigError, EngineError, NotOpen, Unavailable, Unstorable
from headrace.runtime.host import Host
from headrace.runtime.writes.writer import Writer
from tests.support.invariants import check_store
from tests.support.servers import daemons
from tests.support.servers.postgres import Server, shared


def engine_of(url: str, **options: Any) -> PostgresEngine:
    return PostgresEngine(url, rules=Rules(), host=Host(), **options)


# The way to the server


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Server]:
    """A server that asks everybody but postgres for a password."""
    server = Server.start(tmp_path, fsync="off")
    server.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
    [(file,)] = server.execute("SHOW hba_file")
    server.execute(f"COPY (VALUES ('host all postgres all trust'), ('host all all all scram-sha-256')) TO '{file}'")
    server.execute("SELECT pg_reload_conf()")
    yield server
    server.stop()


async def test_a_wrong_password_is_said_and_not_repeated_back(guarded: Server) -> None:
    database = guarded.create_database()
    guarded.execute(f'GRANT ALL ON DATABASE "{database}" TO ann')
    url = guarded.url(database).replace("postgres@", "ann:secret-word@")
    with pytest.raises(ConfigError, match="password") as caught:
        await engine_of(url).open()
    assert "secret-word" not in str(caught.value)
    right = engine_of(url.replace("secret-word", "right"))
    await right.open()
    await right.close()


async def test_a_database_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no_such_place.*the database in the URL"):
        await engine_of(shared().url("no_such_place")).open()


async def test_a_server_that_is_not_there_is_unavailable_and_nothing_was_written() -> None:
    url = f"postgresql://postgres@127.0.0.1:{daemons.free_port()}/postgres"
    for verb in (engine_of(url).open, engine_of(url).exists, engine_of(url).migrate):
        with pytest.raises(Unavailable, match="out of reach") as caught:
            await verb()
        assert caught.value.outcome == "refused"
    with pytest.raises(Unavailable):
        async with App(url):
            pass


async def test_a_user_without_rights_is_told_so_and_one_with_enough_may_work(lab: Lab, schema: str) -> None:
    server = shared()
    name = f"guest_{schema.strip(chr(34))}"
    server.execute(f'CREATE ROLE "{name}" LOGIN')
    # Whoever uses a schema that is there need not be allowed to make one.
    server.execute(f'REVOKE CREATE ON DATABASE postgres FROM "{name}"')
    guest = engine_of(server.url().replace("postgres@", f"{name}@"), schema=schema.strip('"'))
    try:
        with pytest.raises(EngineError, match="grant"):
            await guest.open()
        server.execute(f'GRANT USAGE ON SCHEMA {schema} TO "{name}"')
        server.execute(f'GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO "{name}"')
        server.execute(f'GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO "{name}"')
        await guest.open()
        [answer] = await guest.jobs.insert([lab.job()], lab.now)
        assert isinstance(answer, Inserted)
        await guest.close()
    finally:
        server.execute(f'DROP OWNED BY "{name}"')
        server.execute(f'DROP ROLE "{name}"')


async def test_a_schema_dropped_under_a_session_is_said(lab: Lab, schema: str) -> None:
    await lab.put()
    shared().execute(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(EngineError, match="dropped"):
        await lab.put()


async def test_a_session_that_is_closed_says_so(lab: Lab) -> None:
    await lab.engine.close()
    with pytest.raises(NotOpen):
        await lab.engine.records.ledger()
    await lab.engine.open()
    assert (await lab.engine.records.ledger()).accepted == 0


@pytest.mark.parametrize("schema", ["a-b", 'x"; DROP', "pg_mine", "a" * 49, "", "1st"])
def test_names_that_would_have_to_be_escaped_are_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="schema must be"):
        engine_of("postgresql://localhost/x", schema=schema)


# Statements the server refuses


async def test_a_lock_that_is_not_to_be_had_is_refused_for_now(lab: Lab, schema: str) -> None:
    await lab.put()
    user = await asyncpg.connect(shared().url())
    async with user.transaction():
        await user.execute(f"LOCK TABLE {schema}.jobs IN EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="for now") as caught:
            await lab.put()
        assert caught.value.outcome == "refused"
    await user.close()
    await lab.put()
    assert (await lab.engine.records.ledger()).accepted == 2


async def test_a_server_that_takes_no_writes_is_refused_for_now(lab: Lab) -> None:
    worker = await lab.worker()
    engine = engine_of(f"{shared().url()}", schema=lab.engine._name)  # type: ignore[attr-defined]
    await engine.open()
    async with engine._hot.connection() as connection:
        await connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(Unavailable, match="read-only") as caught:
        await engine.jobs.insert([lab.job()], lab.now)
    assert caught.value.outcome == "refused"
    await engine.close()
    assert await lab.claim(worker) == []


# Text


BAD: dict[str, dict[str, Any]] = {
    "half a surrogate pair in the task": {"task": "\ud800"},
    "half a surrogate pair in the queue": {"queue": "\ud800"},
    "half a surrogate pair in a tag": {"tags": ("\ud800",)},
    "half a surrogate pair in the key": {"dedup": "\ud800"},
    "a NUL in the task": {"task": "a\0b"},
    "a NUL in the queue": {"queue": "a\0b"},
    "a NUL in a tag": {"tags": ("a\0b",)},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_text_that_cannot_be_stored_fails_alone(lab: Lab, bad: dict[str, Any]) -> None:
    writer = Writer(lab.engine, lab.host)
    good = [lab.job(dedup="k" if "dedup" in bad else None), *(lab.job(dedup=bad.get("dedup") and str(n)) for n in "ab")]
    jobs = [good[0], lab.job(**bad), *good[1:]]
    answers = await asyncio.gather(*(writer.inserts.insert(job) for job in jobs), return_exceptions=True)
    await writer.close()
    assert [type(answer) for answer in answers] == [Inserted, Unstorable, Inserted, Inserted]
    assert (await lab.engine.records.ledger()).accepted == 3
    assert {job.id for job in await lab.claim(await lab.worker())} == {job.id for job in good}


STRANGE = 'a\0b "quoted" \\ {braces} \x01 \u2028 é 𝄞 \x7f %s $1 \\u0000'
"""All that is allowed within JSON."""


async def test_strange_text_within_documents_comes_back_as_it_was(lab: Lab) -> None:
    document = msgspec.json.encode({"text": STRANGE}).decode()
    key = STRANGE.replace("\0", "")
    job = await lab.running(await lab.worker(), payload=document, metadata={"text": STRANGE}, dedup=key)
    assert await lab.get(job) == job
    report = progress(job, lab.now, Progress(50.0, STRANGE), lab.rules)
    await lab.apply(report)
    assert (await lab.get(job)).progress == Progress(50.0, STRANGE)
    [again] = await lab.insert(lab.job(dedup=key))
    assert isinstance(again, Duplicated)
    assert again.job.payload_text == document
    failed = await lab.finish(job, Failed(error=ErrorInfo("Oops", STRANGE)))
    [attempt] = await lab.attempts(failed)
    assert attempt.error == failed.error == ErrorInfo("Oops", STRANGE)
    lab.later(1000)
    [second] = await lab.claim(await lab.worker())
    done = await lab.finish(await lab.start(second), Completed(document))
    assert done.result_text == document
    assert await lab.get(done) == done
    await check_store(lab.engine)


@pytest.mark.parametrize("long", ["x" * 20_000, "é" * 5_000, "".join(chr(33 + at * 7 % 90) for at in range(9_000))])
async def test_keys_and_tags_of_any_length_work(lab: Lab, long: str) -> None:
    first = await lab.put(dedup=long, tags=(long, "short"), requires={long: long})
    [again] = await lab.insert(lab.job(dedup=long))
    assert again == Duplicated(first)
    other = await lab.put(dedup=long + "x", tags=(long + "x",))

    async def found(**filter: Any) -> list[Job]:
        return list((await lab.engine.records.find(Filter(**filter), lab.now)).items)

    assert await found(tag=long) == [first]
    assert await found(tag=long + "x") == [other]
    await lab.cancel(first)
    assert (await lab.put(dedup=long)).id != first.id


@pytest.mark.parametrize("name", ["task", "queue"])
async def test_names_longer_than_an_index_takes_fail_alone_or_work(lab: Lab, name: str) -> None:
    dice = random.Random(5)
    long: Any = "".join(chr(dice.randrange(0x100, 0x1100)) for _ in range(6_000))  # cannot be compressed
    writer = Writer(lab.engine, lab.host)
    jobs = [lab.job(), lab.job(**{name: long}), lab.job()]
    answers = await asyncio.gather(*(writer.inserts.insert(job) for job in jobs), return_exceptions=True)
    await writer.close()
    assert isinstance(answers[0], Inserted)
    assert isinstance(answers[2], Inserted)
    assert isinstance(answers[1], Inserted | Unstorable), answers[1]
    stored = sum(isinstance(answer, Inserted) for answer in answers)
    assert len(await lab.claim(await lab.worker())) == stored
