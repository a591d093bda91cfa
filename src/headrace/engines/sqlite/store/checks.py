"""Checks: the health of the file, for people to read."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import apsw

from headrace.engine import Check
from headrace.engines.sql.records import ledger_check, ledger_of
from headrace.engines.sqlite.store import schema
from headrace.engines.sqlite.store.connection import OWN_FILE_MODE, ask
from headrace.engines.sqlite.store.presence import directory_of, folder_mode

__all__ = ["check"]

_LOW_DISK_BYTES = 256 * 1024 * 1024
_LONG_LOG_BYTES = 512 * 1024 * 1024
_FULL, _LESS = 2, {0: "OFF", 1: "NORMAL"}
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph", "afs", "lustre"})


def check(connection: apsw.Connection, path: Path, mode: int) -> Iterator[Check]:
    """Yield every finding, good and bad; ``mode``: what the files are to have."""
    yield Check("library", "ok", f"SQLite {apsw.sqlite_lib_version()} by apsw {apsw.apsw_version()}")
    done, pending = schema.applied(connection), schema.pending(connection, path)
    if pending:
        yield Check("schema", "fail", f"{done[-1] if done else 'nothing'} is not the newest", "run `headrace migrate`")
        return
    yield Check("schema", "ok", done[-1])
    if connection.pragma("journal_mode") == "wal":
        yield Check("journal", "ok", "write-ahead log")
    else:
        yield Check("journal", "fail", "not a write-ahead log", "close every other program that has the file open")
    # Queried, not remembered: what SQLite does is what counts.
    if (found := connection.pragma("synchronous")) >= _FULL:
        yield Check("synchronous", "ok", "FULL: every acknowledged write is on disk")
    else:
        yield Check(
            "synchronous",
            "warn",
            f"{_LESS.get(found, found)}: a power failure may take the last writes, though never the file's consistency",
            "leave ?synchronous=normal out of the URL",
        )
    yield _access(path, mode)
    yield _integrity(connection, path)
    yield from _room(path)
    yield ledger_check(ledger_of(connection.execute(ask("ledger")).get))


def _access(path: Path, mode: int) -> Check:
    """Check who may use the files: they hold every job, and the secrets that sign leases and webhooks."""
    folder = directory_of(path)
    found = {Path(f"{path}{end}"): mode for end in ("", "-wal", "-shm")} | {folder: folder_mode(mode)}
    wrong = {one: wanted for one, wanted in found.items() if one.exists() and _mode(one) != wanted}
    if not wrong or os.name == "nt":  # which has no such modes
        who = "its user alone" if mode == OWN_FILE_MODE else "its user and its group"
        return Check("access", "ok", f"mode {mode:04o}: {who} may use the file")
    say = " && ".join(f"chmod {wanted:04o} {quote(str(one))}" for one, wanted in wrong.items())
    if open_ := [one for one, wanted in wrong.items() if _mode(one) & ~wanted]:
        which = ", ".join(f"{one.name} is {_mode(one):04o}" for one in open_)
        message = f"other users of this machine may get at it: {which}"
        shared = " (a group that may: say ?mode=0660 in the URL)" if mode == OWN_FILE_MODE else ""
        return Check("access", "warn", message, f"{say}{shared}")
    which = ", ".join(f"{one.name} is {_mode(one):04o}" for one in wrong)
    return Check("access", "warn", f"the URL says mode {mode:04o}, and {which}", say)


def _mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode) & 0o777


def _integrity(connection: apsw.Connection, path: Path) -> Check:
    found = [str(text) for (text,) in connection.execute("PRAGMA quick_check(5)").fetchall()]
    if found == ["ok"]:
        return Check("integrity", "ok", "the file is sound")
    return Check("integrity", "fail", "; ".join(found), f"restore a backup, or try `sqlite3 {path} .recover`")


def _room(path: Path) -> Iterator[Check]:
    free = shutil.disk_usage(path.parent).free
    if free > _LOW_DISK_BYTES:
        yield Check("disk", "ok", f"{free // 2**20} MiB free")
    else:
        yield Check("disk", "warn", f"{free // 2**20} MiB free", "make room before it is full")
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > _LONG_LOG_BYTES:
        yield Check("log", "warn", f"{size // 2**20} MiB", "some program keeps a read open; find and close it")
    else:
        yield Check("log", "ok", f"{size // 2**10} KiB")
    kind = _filesystem(path)
    if kind in _REMOTE:
        yield Check("filesystem", "fail", f"{kind}: locks over a network do not hold", "keep the file on a local disk")
    elif kind:
        yield Check("filesystem", "ok", kind)


def _filesystem(path: Path) -> str | None:
    """Return the kind of file system of the file, if the system reports it."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best, kind = 0, None
    for line in mounts:
        parts = line.split()
        if len(parts) > 2 and len(parts[1]) >= best and path.is_relative_to(parts[1]):
            best, kind = len(parts[1]), parts[2]
    return kind
