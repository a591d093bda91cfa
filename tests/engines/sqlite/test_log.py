"""The write-ahead log does not grow for as long as somebody reads."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw
import pytest

from headrace.engines.sqlite.store import connection as module
from headrace.engines.sqlite.store.connection import connect, trim_log
from headrace.engines.sqlite.store.thread import DbThread
from headrace.runtime.host import Host


def test_a_log_that_readers_kept_from_starting_anew_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs.db"
    monkeypatch.setattr(module, "MAX_LOG_BYTES", 200_000)
    writer = connect(path, "full")
    writer.execute("CREATE TABLE migrations (x); CREATE TABLE t (x)")
    log = Path(f"{path}-wal")
    reader = apsw.Connection(str(path))
    try:
        reading = reader.execute("SELECT * FROM sqlite_schema")
        next(reading)  # a snapshot that is held
        for _ in range(100):
            writer.execute("INSERT INTO t VALUES (randomblob(10000))")
        assert log.stat().st_size > 200_000
        assert trim_log(writer, path) == 10.0  # not while it is read
        assert log.stat().st_size > 200_000
        reading.close()
        assert trim_log(writer, path) == 1.0
        assert log.stat().st_size == 0
        assert writer.execute("SELECT count(*) FROM t").get == 100
    finally:
        reader.close()
        writer.close()


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    writer = connect(path, "full")
    writer.execute("CREATE TABLE migrations (x)")
    size = Path(f"{path}-wal").stat().st_size
    assert trim_log(writer, path) == 1.0
    assert Path(f"{path}-wal").stat().st_size == size > 0
    writer.close()


async def test_a_thread_tidies_between_two_pieces_of_work(tmp_path: Path) -> None:
    path, tidied = tmp_path / "jobs.db", threading.Event()

    def tidy(connection: apsw.Connection) -> float:
        tidied.set()
        return 1.0

    thread = DbThread("thread", path, Host(), lambda: connect(path, "full"), tidy)
    await thread.open()
    await thread.run(lambda connection: connection.execute("CREATE TABLE migrations (x)").get)
    await thread.close()
    assert tidied.is_set()
