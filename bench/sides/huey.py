"""huey on SQLite with the settings ``SqliteHuey()`` comes with, worker processes with one thread (its default).

No results are kept (its handler returns None, which huey does not store), no logging is set up, and huey removes a job
before it runs it: all of that is in huey's favour.
"""

from __future__ import annotations

import importlib
import itertools
import sqlite3
import sys
import threading
import time
from importlib.metadata import version
from typing import Any

from bench.pacing import gaps
from bench.plan import SUBMITTERS, WARM
from bench.sides import How
from bench.wire import await_word, report, say

# huey loads redis where it is installed; a worker on SQLite need not carry it because other sides brought it along.
sys.modules["redis"] = None  # type: ignore[assignment]
SqliteHuey: Any = importlib.import_module("huey").SqliteHuey

__all__ = ["Huey", "remaining", "settings", "submit", "work"]

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class Huey:
    """One way to set huey up."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def _open(self, store: str, options: dict[str, Any] | None = None) -> Any:
        return SqliteHuey(filename=store, **(self._options if options is None else options))

    def submit(self, store: str, how: How, count: int, per_second: float) -> float:
        """Enqueue, in this process."""
        # Filling a store is not measured, so it need not wait for the disk.
        huey = self._open(store, {"fsync": False} if how == "fill" else None)
        noop, stamp = _tasks(huey, lambda: None, [])
        if how in ("one", "concurrent"):
            _one_by_one(noop, WARM["sqlite"])
        began = time.perf_counter()
        match how:
            case "one" | "fill":
                _one_by_one(noop, count)
            case "concurrent":
                crew = [
                    threading.Thread(target=_one_by_one, args=(noop, count // SUBMITTERS)) for _ in range(SUBMITTERS)
                ]
                for thread in crew:
                    thread.start()
                for thread in crew:
                    thread.join()
            case "paced":
                for gap in gaps(count, per_second):
                    time.sleep(gap)
                    stamp(time.time())
            case _:
                raise NotImplementedError(f"huey has no {how}")
        return time.perf_counter() - began

    def work(self, store: str, threads: int) -> None:
        """Run a consumer in this process."""
        huey = self._open(store)
        numbers, waits = itertools.count(1), list[float]()
        ran = 0

        def done() -> None:
            nonlocal ran
            ran = next(numbers)  # nothing is stored after the handler, so its end is the end

        _tasks(huey, done, waits)
        say(ready=True)
        await_word()
        consumer = huey.create_consumer(workers=threads)
        consumer.start()
        report(lambda: ran, waits)
        consumer.stop()

    def remaining(self, store: str) -> int:
        """Ask huey."""
        return int(self._open(store).storage.queue_size())

    def settings(self, store: str) -> str:
        """Versions, and what the connection says."""
        connection = self._open(store).storage.conn
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        said = ", ".join(f"{name}={value}" for name, value in self._options.items())
        return (
            f"SqliteHuey({said}) {version('huey')}, SQLite {sqlite3.sqlite_version} by sqlite3, "
            f"journal {journal.upper()}, synchronous {_SYNCHRONOUS[synchronous]}"
        )


def _tasks(huey: Any, ran: Any, waits: list[float]) -> tuple[Any, Any]:
    def noop(n: int) -> None:
        ran()

    def stamp(sent: float) -> None:
        waits.append(time.time() - sent)
        ran()

    return huey.task()(noop), huey.task()(stamp)


def _one_by_one(task: Any, count: int) -> None:
    for n in range(count):
        task(n)


_huey = Huey()
submit, work, remaining, settings = _huey.submit, _huey.work, _huey.remaining, _huey.settings
