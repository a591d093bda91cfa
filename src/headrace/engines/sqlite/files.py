"""The files a connection works on: noticed when they were deleted, replaced or emptied under it.

SQLite goes on with the files it has opened, whatever becomes of their names. What it then commits is found by nobody.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import apsw

from headrace.errors import StoreLost

__all__ = ["Files", "find", "has_moved", "refuse_empty"]

_REOPEN = "close the App and open it again, or restart the program"

_Identity = tuple[int, int]
"""Device and inode."""


class Files:
    """What a connection has opened, by device and inode; made when it is connected, and asked after every commit."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        """:raises StoreLost: the file was replaced while it was being opened"""
        self._path = path
        self._beside = (f"{path}-wal", f"{path}-shm")
        self._file = find(path)
        # Asked in this order: what is compared with from now on is what the connection has open.
        if has_moved(connection):
            raise _replaced(self._path)
        self._logs = [_identity(name) for name in self._beside]

    def check(self) -> None:
        """Make sure that others who open the path find what is committed here; costs a few microseconds.

        :raises StoreLost: they would not
        """
        if find(self._path) != self._file:
            raise _replaced(self._path)
        for place, name in enumerate(self._beside):
            found, known = _identity(name), self._logs[place]
            if known is None:  # SQLite had not needed it yet
                self._logs[place] = found
            elif found != known:
                raise _logless(self._path, name)


def find(path: Path) -> _Identity:
    """Which file it is that was open under this path.

    :raises StoreLost: it is gone, or nothing is left in it
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise _deleted(path) from None
    except OSError as error:
        raise StoreLost(f"{path} cannot be looked at: {error}; then {_REOPEN}", outcome="unknown") from error
    if not found.st_size:  # SQLite writes its first page before anything else, and never takes it back
        raise _emptied(path)
    return found.st_dev, found.st_ino


def refuse_empty(connection: apsw.Connection, path: Path) -> None:
    """Keep from making a new store in what is left of one; :raises StoreLost:"""
    if not connection.execute("SELECT count(*) FROM sqlite_schema").get:
        raise _emptied(path)


def has_moved(connection: apsw.Connection) -> bool:
    """Whether the path of a connection's file leads elsewhere by now, as far as the system tells."""
    answer = ctypes.c_int(0)
    known = connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return known and bool(answer.value)


def _identity(name: str) -> _Identity | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _deleted(path: Path) -> StoreLost:
    return StoreLost(
        f"{path} was deleted or moved away while it was open, and what is written now would be lost: put it back, if it"
        f" is still somewhere, then {_REOPEN}; if there is no file then, a new and empty one is made",
        outcome="unknown",
    )


def _replaced(path: Path) -> StoreLost:
    return StoreLost(
        f"{path} was replaced by another file while it was open, and what is written to the old one would be lost:"
        f" {_REOPEN}, to go on with the one that is there now",
        outcome="unknown",
    )


def _emptied(path: Path) -> StoreLost:
    return StoreLost(
        f"{path} was emptied while it was open: stop every program that uses it, restore a backup, then {_REOPEN}",
        outcome="unknown",
    )


def _logless(path: Path, log: str) -> StoreLost:
    return StoreLost(
        f"{log} was deleted or replaced while {path} was open, and the newest commits may be in the old one alone: stop"
        " every program that uses it in good order (no kill), which saves them, and start them again",
        outcome="unknown",
    )
