"""The file is deleted, replaced or damaged while it is open: nothing is acknowledged that nobody will find."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import apsw
import pytest

from headrace import App
from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.store.files import Files
from headrace.errors import ConfigError, StoreLost
from headrace.runtime.clock import SystemClock
from headrace.runtime.host import Host
from tests.support.apps import Sums
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[4]
AT_ONCE = 15.0
"""Seconds; half of what a store that may come back is waited for."""


NEW = """
import asyncio, sys
from headrace import App

async def main():
    async with App(f"sqlite:///{sys.argv[1]}"):
        pass

asyncio.run(main())
"""


def outside(program: str, *words: object) -> None:
    """Do something to a file in a process of its own: to open and close it in this one would undo SQLite's locks."""
    subprocess.run([sys.executable, "-c", program, *map(str, words)], check=True, timeout=60)


def new_store(path: Path) -> None:
    """Another store, closed."""
    outside(NEW, path)


def move(path: Path, name: str) -> Path:
    """Give it another name."""
    return path.rename(path.with_name(name))


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink()


def move_away(path: Path) -> None:
    move(path, "jobs.bak")


def remove_folder(path: Path) -> None:
    delete_all(path)
    path.parent.rmdir()


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace(path: Path) -> None:
    other = path.with_suffix(".other")
    new_store(other)
    other.rename(path)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def delete_index(path: Path) -> None:
    Path(f"{path}-shm").unlink()


HARMS = {
    delete: "was deleted or moved away",
    delete_all: "was deleted or moved away",
    move_away: "was deleted or moved away",
    remove_folder: "was deleted or moved away",
    move_folder: "was deleted or moved away",
    replace: "was replaced by another file",
    empty: "was emptied",
    delete_log: r"jobs\.db-wal was deleted or replaced",
    delete_index: r"jobs\.db-shm was deleted or replaced",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The file of an App, in a folder of its own."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "jobs.db"


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "looked-at"])
@pytest.mark.parametrize(("harm", "words"), HARMS.items(), ids=[harm.__name__ for harm in HARMS])
async def test_what_would_not_be_found_is_not_acknowledged(
    place: Path, harm: Callable[[Path], None], words: str, watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if watched:  # by the kernel alone, if that can tell
        monkeypatch.setattr("headrace.engines.sqlite.store.files._CHECK_SECONDS", 600.0)
    else:
        monkeypatch.setattr("headrace.engines.sqlite.store.files.watch", lambda *_: None)
    sums = Sums(f"sqlite:///{place}?synchronous=normal")
    async with sums.app as app:
        before = await sums.add.submit(1)
        await asyncio.to_thread(harm, place)
        began = time.monotonic()
        with pytest.raises(StoreLost, match=words) as caught:
            await sums.add.submit(2)
        assert len(caught.value.ids) == 1
        assert caught.value.outcome == "unknown"
        with pytest.raises(StoreLost, match=words):
            await sums.add.map([(3,), (4,)])
        with pytest.raises(StoreLost, match=words):
            await before.refresh()
        with pytest.raises(StoreLost, match=words):
            await before.result(timeout=AT_ONCE)
        with pytest.raises(StoreLost, match=words):
            await before.cancel()
        with pytest.raises(StoreLost, match=words):
            async with app.batch() as batch:
                batch.add(sums.add.draft(5))
        assert time.monotonic() - began < AT_ONCE, "it is said at once"


@pytest.mark.parametrize("harm", [delete, delete_all, replace])
async def test_an_app_that_is_opened_again_goes_on_with_what_is_there(
    place: Path, harm: Callable[[Path], None]
) -> None:
    sums = Sums(f"sqlite:///{place}?synchronous=normal")
    async with sums.app:
        await sums.add.submit(1)
        await asyncio.to_thread(harm, place)
        with pytest.raises(StoreLost):
            await sums.add.submit(2)
    async with sums.app as app, app.worker():
        assert await (await sums.add.submit(3)).result(timeout=60) == 4


async def test_a_file_that_comes_while_the_old_one_is_open_is_another(place: Path) -> None:
    sums = Sums(f"sqlite:///{place}?synchronous=normal")
    async with sums.app:
        await asyncio.to_thread(delete_all, place)
        with pytest.raises(StoreLost, match="deleted"):
            await sums.add.submit(1)
        new_store(place)
        with pytest.raises(StoreLost, match="replaced"):
            await sums.add.submit(2)
        async with App(f"sqlite:///{place}") as other:
            assert (await other.session.engine.records.ledger()).accepted == 0


async def test_a_file_that_is_put_back_is_used_again(lab: Lab, file: Path) -> None:
    first = await lab.put()
    aside = move(file, "aside")
    with pytest.raises(StoreLost):
        await lab.put()
    move(aside, file.name)
    await lab.put()
    assert await lab.get(first) == first


async def test_a_log_that_was_deleted_is_saved_by_closing(place: Path) -> None:
    sums = Sums(f"sqlite:///{place}")
    async with sums.app:
        for at in range(20):
            await sums.add.submit(at)
        delete_log(place)
        with pytest.raises(StoreLost, match="in good order"):
            await sums.add.submit(21)
    async with sums.app as app:
        assert (await app.session.engine.records.ledger()).accepted >= 20


async def test_nothing_that_was_acknowledged_is_missing_from_a_file_that_was_moved(file: Path) -> None:
    command = (sys.executable, "-m", "tests.support.programs.sqlite_child", "insert", file, 1_000_000, 1)
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=PIPE, stderr=PIPE, cwd=ROOT)
    assert process.stdout is not None
    acknowledged = [(await process.stdout.readline()).decode().strip() for _ in range(100)]
    moved = move(file, "moved.db")
    rest, errors = await process.communicate()
    assert "StoreLost" in errors.decode()
    acknowledged += rest.decode().split()
    move(Path(f"{file}-wal"), f"{moved.name}-wal")
    engine = SqliteEngine(moved, rules=Rules(), host=Host())
    await engine.open()
    for at in range(0, len(acknowledged), 1000):
        assert None not in await engine.jobs.get([UUID(id) for id in acknowledged[at : at + 1000]])
    await engine.close()


async def test_a_link_that_leads_elsewhere_is_a_replaced_file(tmp_path: Path) -> None:
    real, other, link = tmp_path / "real.db", tmp_path / "other.db", tmp_path / "link.db"
    link.symlink_to(real)
    engine = SqliteEngine(link, rules=Rules(), host=Host())
    await engine.open()
    lab = Lab(lambda: engine, Host(), Rules())
    await lab.put()
    new_store(other)
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(StoreLost, match="replaced"):
        await lab.put()
    await engine.close()


async def test_a_link_above_that_leads_elsewhere_is_noticed_by_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As deployments do it: the kernel tells nobody, so the files are looked at each time."""
    monkeypatch.setattr("headrace.engines.sqlite.store.files._CHECK_SECONDS", 600.0)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "one")
    engine = SqliteEngine(link / "jobs.db", rules=Rules(), host=Host())
    await engine.open()
    lab = Lab(lambda: engine, Host(), Rules())
    await lab.put()
    await lab.put()
    (tmp_path / "next").symlink_to(tmp_path / "two")
    (tmp_path / "next").rename(link)
    with pytest.raises(StoreLost):
        await lab.put()
    await engine.close()


def test_a_file_that_is_replaced_while_it_is_opened_is_noticed(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE t (x)")
    other = apsw.Connection(f"{file}.other")
    other.execute("CREATE TABLE t (x)")
    other.close()
    Path(f"{file}.other").rename(file)
    with pytest.raises(StoreLost, match="replaced"):
        Files(connection, file, SystemClock())
    connection.close()


async def test_a_commit_of_the_apps_own_transaction_is_not_acknowledged(lab: Lab, file: Path) -> None:
    async def within() -> None:
        async with lab.transactions.transaction() as connection:
            await lab.transactions.enlist(connection).run(await lab.transactions.inserting([lab.job()], lab.now))
            move(file, "aside")

    with pytest.raises(StoreLost, match="deleted or moved"):
        await within()


async def test_a_connection_of_the_users_on_the_old_file_is_refused(lab: Lab, file: Path) -> None:
    mine = apsw.Connection(str(file))
    mine.execute("BEGIN")
    lab.transactions.enlist(mine)
    other = file.with_name("other.db")
    new_store(other)
    move(other, file.name)
    with pytest.raises(ConfigError, match="open a new one"):
        lab.transactions.enlist(mine)
    mine.close()


# Damaged


GARBLE = """
import os, sys, apsw
path, begin = sys.argv[1], int(sys.argv[2])
connection = apsw.Connection(path)
busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
assert not busy
connection.close()
with open(path, "r+b") as file:
    size = file.seek(0, 2)
    file.seek(begin)
    file.write(os.urandom(size - begin))
"""


async def filled(place: Path) -> Sums:
    """An App on a store whose tables do not fit into what its connections remember."""
    sums = Sums(f"sqlite:///{place}?synchronous=normal")
    async with sums.app:
        for _ in range(3):
            await sums.add.options(metadata={"text": "x" * 3000}).map([(at,) for at in range(1000)])
    return sums


async def test_a_damaged_file_is_said_at_once_with_the_remedy(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    sums = await filled(place)
    async with sums.app as app:
        await asyncio.to_thread(outside, GARBLE, place, 2**20)  # the roots of tables stand, their leaves do not
        began = time.monotonic()
        with pytest.raises(StoreLost, match=r"is damaged.*headrace doctor.*restore a backup.*\.recover") as caught:
            await sums.add.submit(1)
        assert len(caught.value.ids) == 1
        with pytest.raises(StoreLost, match="is damaged"):
            await app.worker().run()
        assert time.monotonic() - began < AT_ONCE
    assert not [record for record in caplog.records if "repeating" in record.getMessage()]
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(said) <= 1


async def test_a_file_that_is_overwritten_is_damaged_and_no_database_when_it_is_opened(place: Path) -> None:
    sums = await filled(place)
    async with sums.app:
        await asyncio.to_thread(outside, GARBLE, place, 0)
        with pytest.raises(StoreLost, match="is damaged"):
            await sums.add.submit(1)
    with pytest.raises(ConfigError, match="not a SQLite database"):
        await sums.app.__aenter__()


# Workers


@pytest.mark.parametrize("harm", [delete, replace])
async def test_a_worker_of_an_app_stops_and_says_why_once(
    place: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    sums = Sums(f"sqlite:///{place}?synchronous=normal")
    async with sums.app as app:
        worker = app.worker()
        working = asyncio.create_task(worker.run())
        assert await (await sums.add.submit(1)).result(timeout=60) == 2
        await asyncio.to_thread(harm, place)
        with pytest.raises(StoreLost):
            await asyncio.wait_for(working, 60)
        await until(lambda: worker.stats.state == "stopped")
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(said) == 1
    assert "claims no more and stops" in said[0]
    assert str(place) in said[0]
