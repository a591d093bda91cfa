"""The ceiling: the SQL a durable queue cannot do without, in batches, with no framework around it.

It keeps what headrace keeps (id, payload, times, owner, epoch, result, attempt), waits for the disk like headrace, and
checks nothing else. One connection, one thread.
"""

from __future__ import annotations

import json
import threading
import time
import uuid

import apsw

from bench.plan import CHUNK, RAW_BATCH, SUBMITTERS, WARM
from bench.sides import How
from bench.wire import await_word, report, say

__all__ = ["remaining", "settings", "submit", "work"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, task TEXT NOT NULL, status TEXT NOT NULL, rank INTEGER NOT NULL,
  arrived_at REAL NOT NULL, epoch INTEGER NOT NULL DEFAULT 0, worker TEXT, started_at REAL, finished_at REAL,
  payload TEXT NOT NULL, result TEXT
);
CREATE INDEX IF NOT EXISTS ready ON jobs (rank, arrived_at, seq) WHERE status = 'queued';
CREATE TABLE IF NOT EXISTS attempts (seq INTEGER, number INTEGER, data TEXT, PRIMARY KEY (seq, number)) WITHOUT ROWID;
"""
_INSERT = """
INSERT INTO jobs (id, task, status, rank, arrived_at, payload)
SELECT unhex(value ->> 0), 'noop', 'queued', 0, value ->> 1, value ->> 2 FROM jsonb_each(?)
"""
_CLAIM = """
UPDATE jobs SET status = 'accepted', epoch = epoch + 1, worker = 'w', started_at = ?1
WHERE seq IN (SELECT seq FROM jobs WHERE status = 'queued' ORDER BY rank, arrived_at, seq LIMIT ?2)
RETURNING seq, epoch, payload
"""
_FINISH = """
UPDATE jobs SET status = 'completed', result = value ->> 2, finished_at = value ->> 3
FROM jsonb_each(?) WHERE seq = value ->> 0 AND epoch = value ->> 1 AND worker = 'w'
"""
_ATTEMPT = "INSERT INTO attempts SELECT value ->> 0, value ->> 1, value ->> 4 FROM jsonb_each(?)"


def _open(store: str) -> apsw.Connection:
    connection = apsw.Connection(store)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(_SCHEMA)
    return connection


def submit(store: str, how: How, count: int, per_second: float) -> float:
    """Insert: in commits of one, of as many as there are submitters, or of a bulk submit's size."""
    connection = _open(store)
    size = {"one": 1, "concurrent": SUBMITTERS}.get(how, CHUNK)
    if how != "fill":
        _insert(connection, WARM["sqlite"], 1)
    began = time.perf_counter()
    _insert(connection, count, size)
    return time.perf_counter() - began


def _insert(connection: apsw.Connection, count: int, size: int) -> None:
    for first in range(0, count, size):
        rows = [(uuid.uuid4().hex, time.time(), json.dumps({"n": first + n})) for n in range(min(size, count - first))]
        connection.execute(_INSERT, (json.dumps(rows),))


def work(store: str, threads: int) -> None:
    """Claim a batch, finish a batch, on one connection."""
    done, ended = 0, threading.Event()

    def drain() -> None:
        nonlocal done
        connection = _open(store)
        while not ended.is_set():
            done += _batch(connection)

    say(ready=True)
    await_word()
    worker = threading.Thread(target=drain)
    worker.start()
    report(lambda: done)
    ended.set()
    worker.join()


def _batch(connection: apsw.Connection) -> int:
    """How many jobs there were to do."""
    now = time.time()
    jobs = connection.execute(_CLAIM, (now, RAW_BATCH)).fetchall()
    if not jobs:
        time.sleep(0.01)
        return 0
    rows = []
    for seq, epoch, payload in jobs:
        json.loads(str(payload))
        rows.append((seq, epoch, "null", time.time(), json.dumps({"outcome": "completed", "started_at": now})))
    document = json.dumps(rows)
    with connection:
        connection.execute(_FINISH, (document,))
        connection.execute(_ATTEMPT, (document,))
    return len(jobs)


def remaining(store: str) -> int:
    """Count what is not completed."""
    return int(_open(store).execute("SELECT count(*) FROM jobs WHERE status <> 'completed'").get)


def settings(store: str) -> str:
    """What the connection says."""
    connection = _open(store)
    return (
        f"raw SQL, SQLite {apsw.sqlite_lib_version()} by apsw, journal {connection.pragma('journal_mode').upper()}, "
        f"synchronous {connection.pragma('synchronous')} (2 is FULL); commits of 1, {SUBMITTERS}, {CHUNK}; "
        f"drain in claims and finishes of {RAW_BATCH}"
    )
