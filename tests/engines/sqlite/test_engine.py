"""What an engine on a file promises beyond the contract: it says clearly what is wrong with the file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import apsw
import msgspec
import pytest

from headrace.conformance.lab import Lab
from headrace.core.attempt import Event
from headrace.core.defaults import MAX_AUDIT_ENTRIES, Rules
from headrace.core.job import Job
from headrace.engine import Engine, Inserted
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.store import schema
from headrace.engines.sqlite.store.connection import check_library
from headrace.errors import ConfigError, NotOpen, NotSupported, SchemaTooNew, SchemaTooOld, Unavailable
from headrace.runtime.host import Host


def engine_on(path: Path | str, **options: str) -> SqliteEngine:
    return SqliteEngine(path, rules=Rules(), host=Host(), **options)  # type: ignore[arg-type]


@pytest.fixture
def scribbled(file: Path) -> Path:
    file.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    return file


async def refusal(path: Path, kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        await engine_on(path).open()
    return str(caught.value)


def test_making_an_engine_touches_nothing(file: Path) -> None:
    engine_on(file)
    assert not file.exists()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_memory_is_another_engine(path: str) -> None:
    with pytest.raises(ConfigError, match="memory://"):
        engine_on(path)


def test_an_unknown_durability_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="full or normal"):
        engine_on(file, synchronous="off")


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "is a directory" in await refusal(tmp_path, ConfigError)


async def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    assert "create it first" in await refusal(tmp_path / "nowhere" / "jobs.db", ConfigError)


async def test_a_file_that_is_no_database_is_refused(scribbled: Path) -> None:
    file = scribbled
    assert "not a SQLite database" in await refusal(file, ConfigError)


async def test_a_database_of_something_else_is_refused(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE recipes (name)")
    connection.close()
    assert "something else" in await refusal(file, ConfigError)


async def test_a_file_that_cannot_be_read_is_refused(scribbled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = scribbled
    # Root may read everything, so the system is made to say no.
    monkeypatch.setattr("os.access", lambda path, mode: path != file)
    assert "owner and permissions" in await refusal(file, ConfigError)


async def test_a_newer_schema_is_named(file: Path) -> None:
    await _with_migrations(file, "INSERT INTO migrations VALUES ('9999_later', '', 0)")
    message = await refusal(file, SchemaTooNew)
    assert "9999_later" in message
    assert schema.available()[-1].name in message


async def test_an_old_schema_is_refused_until_it_is_migrated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _with_migrations(file, "")
    known = schema.available()
    later = schema.Migration("0999_more", "CREATE TABLE more (x INTEGER) STRICT")
    monkeypatch.setattr(schema, "available", lambda: (*known, later))
    assert "0999_more" in await refusal(file, SchemaTooOld)
    engine = engine_on(file)
    assert await engine.migrate(plan=True) == ["0999_more"]
    assert await engine.migrate() == ["0999_more"]
    await engine.open()
    await engine.close()


async def _with_migrations(file: Path, statement: str) -> None:
    engine = engine_on(file)
    await engine.open()
    await engine.close()
    connection = apsw.Connection(str(file))
    connection.execute(statement)
    connection.close()


async def test_a_library_that_corrupts_files_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"3\.51\.3"):
        check_library("3.51.2")
    check_library("3.51.3")
    check_library("3.53.0")


async def test_verbs_need_an_open_session(file: Path) -> None:
    engine = engine_on(file)
    with pytest.raises(NotOpen):
        await engine.jobs.get([])
    await engine.open()
    await engine.close()
    with pytest.raises(NotOpen):
        await engine.records.ledger()


async def test_a_closed_session_can_be_opened_on_another_loop(file: Path) -> None:
    engine = engine_on(file)

    async def once() -> int:
        await engine.open()
        lab = Lab(lambda: engine, Host(), Rules())
        lab.engine = engine
        await lab.put()
        accepted = (await engine.records.ledger()).accepted
        await engine.close()
        return accepted

    assert [await asyncio.to_thread(asyncio.run, once()) for _ in range(3)] == [1, 2, 3]


async def test_a_session_that_is_opened_again_keeps_its_roles_and_knows_nothing_of_the_file_before(
    lab: Lab, file: Path
) -> None:
    engine = lab.engine
    roles = [engine.jobs, engine.records, engine.entries, engine.families, engine.workers, engine.documents]
    assert [job.task for job in await _claim_one_of_two(lab, "first", "second")] == ["first"]
    await engine.close()
    os.remove(file)  # the log is not there: closing puts it into the file
    await engine.open()
    assert [job.task for job in await _claim_one_of_two(lab, "second", "first")] == ["second"]
    again = [engine.jobs, engine.records, engine.entries, engine.families, engine.workers, engine.documents]
    assert all(role is before for role, before in zip(again, roles, strict=True))


async def _claim_one_of_two(lab: Lab, wanted: str, other: str) -> list[Job]:
    worker = await lab.worker()
    await lab.put(other)
    await lab.put(wanted)
    return await lab.claim(worker, 2, tasks=(wanted,))


async def test_closing_finishes_what_is_under_way(lab: Lab, file: Path) -> None:
    inserts = [asyncio.ensure_future(lab.insert(lab.job())) for _ in range(50)]
    await asyncio.sleep(0)
    await lab.engine.close()
    answers = await asyncio.gather(*inserts, return_exceptions=True)
    stored = [answer for answer in answers if isinstance(answer, list)]
    assert all(isinstance(answer, NotOpen | list) for answer in answers)
    await lab.engine.open()
    assert (await lab.engine.records.ledger()).accepted == len(stored)


async def test_a_caller_who_leaves_harms_nobody(lab: Lab) -> None:
    jobs = [lab.job() for _ in range(20)]
    tasks = [asyncio.ensure_future(lab.insert(job)) for job in jobs]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(answer, list) for answer in answers[1::2])
    again = [(await lab.insert(job))[0] for job in jobs]
    assert all(isinstance(answer, Inserted) for answer in again)
    ledger = await lab.engine.records.ledger()
    assert (ledger.accepted, ledger.unaccounted) == (20, 0)


async def test_what_is_no_connection_cannot_be_used(lab: Lab) -> None:
    with pytest.raises(NotSupported):
        lab.transactions.enlist(object())


async def test_a_full_disk_is_said_and_nothing_is_lost(lab: Lab) -> None:
    before = await lab.put()
    assert isinstance(lab.engine, SqliteEngine)
    await lab.engine._writer.run(lambda connection: connection.pragma("max_page_count", 30))
    with pytest.raises(Unavailable, match="full") as caught:
        await lab.insert(*(lab.job(payload='"' + "x" * 50_000 + '"') for _ in range(20)))
    assert caught.value.outcome == "refused"
    ledger = await lab.engine.records.ledger()
    assert (ledger.accepted, ledger.unaccounted) == (1, 0)
    await lab.engine._writer.run(lambda connection: connection.pragma("max_page_count", 2**30))
    assert (await lab.engine.jobs.get([before.id])) == [before]
    await lab.put()


async def test_the_log_is_written_through_unless_told_otherwise(file: Path) -> None:
    for word, number in (("full", 2), ("normal", 1)):
        engine = engine_on(file, synchronous=word)
        await engine.open()
        found = await engine._writer.run(lambda connection: connection.pragma("synchronous"))
        assert found == number
        assert await engine._writer.run(lambda connection: connection.pragma("journal_mode")) == "wal"
        await engine.close()


async def test_a_reader_cannot_write(lab: Lab) -> None:
    assert isinstance(lab.engine, SqliteEngine)
    with pytest.raises(Unavailable, match="cannot be written"):
        await lab.engine._reader.run(lambda connection: connection.execute("DELETE FROM jobs"))


async def test_a_long_read_does_not_hold_writers_up(lab: Lab) -> None:
    await lab.put()
    assert isinstance(lab.engine, SqliteEngine)
    started, goes_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def read(connection: apsw.Connection) -> object:
        rows = connection.execute("SELECT seq FROM jobs")
        first = next(rows)
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(goes_on.wait(), loop).result(10)
        return first

    reading = asyncio.ensure_future(lab.engine._reader.run(read))
    await started.wait()
    await lab.put()
    goes_on.set()
    await reading


async def test_another_session_is_a_session_of_its_own(lab: Lab) -> None:
    other: Engine = lab.engine.another_session()
    await other.open()
    job = await lab.put()
    assert await other.jobs.get([job.id]) == [job]
    await other.close()
    assert await lab.engine.jobs.get([job.id]) == [job]


async def test_old_acts_on_settings_are_forgotten(lab: Lab, file: Path) -> None:
    with apsw.Connection(str(file)) as connection:
        row = ("queue:a", msgspec.json.encode(Event("set", lab.now, "ann")).decode())
        connection.executemany("INSERT INTO audit (key, data) VALUES (?, ?)", [row] * (MAX_AUDIT_ENTRIES + 5))
    assert await lab.engine.documents.put_setting("queue:a", "{}", 0, Event("last", lab.now)) is not None
    kept = await lab.engine.documents.audit(2 * MAX_AUDIT_ENTRIES)
    assert (len(kept), kept[0].verb) == (MAX_AUDIT_ENTRIES, "last")
