"""Notices when the files of a connection were deleted, replaced or emptied while they were open.

SQLite keeps using the files that it has opened, whatever happens to their names, and what it then commits is lost.

Files are compared without reading their times. Since Linux 6.13, after a read of a file's times, as by ``os.stat``, its
next write sets the exact time. On ext4 without a journal the next ``fdatasync`` then writes that time, too: two
requests to the disk for each commit, and not one. ``statx`` can leave the times out, but Python offers it only from
3.15 on.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Any

import apsw

from headrace.engines.sqlite.store.inotify import CONTENT, NAME, Watch, watch
from headrace.errors import StoreLost
from headrace.runtime.clock import Clock

__all__ = ["Files", "Identity", "Inodes", "find", "has_moved", "identity_of", "refuse_empty"]


Identity = tuple[int, ...]
"""Of each path: inode, and the device, by its major and minor number."""

_AT_FDCWD = -100
_INO_AND_SIZE = 0x300
_SIZE = 256
_WHICH, _LENGTH = "32xQ96xII112x", "40xQ"
"""Identity and size within a ``struct statx``, which is the same on all machines."""


def _statx() -> Any:
    """Return the function of the C library, if there is one and the kernel lets us call it."""
    try:
        # By ``PyDLL``: the call takes a microsecond, and releasing the interpreter for it would take many.
        found: Any = ctypes.PyDLL(None).statx
    except (AttributeError, OSError, TypeError):
        return None
    found.restype = ctypes.c_int
    answer = ctypes.create_string_buffer(_SIZE)
    return found if found(_AT_FDCWD, b"/", 0, _INO_AND_SIZE, answer) == 0 else None


_STATX = _statx()


class Inodes:
    """The files at these paths, read repeatedly; for one thread at a time."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._buffer = ctypes.create_string_buffer(_SIZE * len(self._paths))
        place = ctypes.addressof(self._buffer)
        self._calls = [
            (_AT_FDCWD, os.fsencode(path), 0, _INO_AND_SIZE, ctypes.c_void_p(place + number * _SIZE))
            for number, path in enumerate(self._paths)
        ]
        self._which = Struct("=" + _WHICH * len(self._paths)).unpack_from
        self._length = Struct("=" + _LENGTH).unpack_from

    def look(self) -> tuple[Identity, int] | None:
        """Return which files exist, and the size of the first; None if any is missing or cannot be read."""
        if _STATX is None:
            return self._look_by_stat()
        for call in self._calls:
            if _STATX(*call):
                return None
        return self._which(self._buffer), self._length(self._buffer)[0]

    def _look_by_stat(self) -> tuple[Identity, int] | None:
        try:
            found = [os.stat(path) for path in self._paths]
        except OSError:
            return None
        return tuple(value for file in found for value in identity_of(file)), found[0].st_size


def identity_of(found: os.stat_result) -> Identity:
    """Return which file that is."""
    if not hasattr(os, "major"):  # on Windows
        return found.st_ino, found.st_dev, 0
    return found.st_ino, os.major(found.st_dev), os.minor(found.st_dev)


_CHECK_SECONDS = 0.01
"""Seconds after which files are checked although the kernel reports nothing: it does not know of all changes, as on a
file system of another machine."""

_REOPEN = "close the App and open it again, or restart the program"
_DELETED = (
    "{path} was deleted or moved away while it was open, and what is written now would be lost: put it back, if it"
    " is still somewhere, then {reopen}; if there is no file then, a new and empty one is made"
)
_REPLACED = (
    "{path} was replaced by another file while it was open, and what is written to the old one would be lost:"
    " {reopen}, to go on with the one that is there now"
)
_EMPTIED = "{path} was emptied while it was open: stop every program that uses it, restore a backup, then {reopen}"
_LOGLESS = (
    "{log} was deleted or replaced while {path} was open, and the newest commits may be in the old one alone: stop"
    " every program that uses it in good order (no kill), which saves them, and start them again"
)


class Files:
    """The files that a connection has open, by device and inode; checked after every commit."""

    def __init__(self, connection: apsw.Connection, path: Path, clock: Clock | None = None) -> None:
        """``clock``: they are checked often, and so watched.

        :raises StoreLost: the file was replaced while it was being opened
        """
        self._path, self._clock = path, clock
        self._beside = (f"{path}-wal", f"{path}-shm")
        self._inodes = Inodes([str(path), *self._beside])
        self._file = find(path)
        # In this order, so that the identity is that of the file that the connection has open.
        if has_moved(connection):
            raise _lost(_REPLACED, self._path)
        self._logs = [_identity(name) for name in self._beside]
        self._known: Identity = ()
        """All of these, once all files exist."""
        self._watch: Watch | None = None
        self._next_look = 0.0

    def check(self) -> None:
        """Make sure that another process that opens the path finds what is committed here; takes a few microseconds at
        most.

        :raises StoreLost: it would not
        """
        if self._clock is None or self._watch is None:
            self._look_at_all()
        elif not self._watch.is_quiet() or self._clock.monotonic() >= self._next_look:
            self._next_look = 0.0  # if this raises, the next check must read again
            self._look_at_all()
            self._next_look = self._clock.monotonic() + _CHECK_SECONDS

    def close(self) -> None:
        """Stop watching them."""
        if self._watch is not None:
            self._watch.close()

    def _look_at_all(self) -> None:
        found = self._inodes.look()
        if found is None or found[0] != self._known or not found[1]:
            self._look()

    def _look(self) -> None:
        """Check one after the other, and raise what is wrong with it."""
        if find(self._path) != self._file:
            raise _lost(_REPLACED, self._path)
        for place, name in enumerate(self._beside):
            found, known = _identity(name), self._logs[place]
            if known is None:  # SQLite had not needed it yet
                self._logs[place] = found
            elif found != known:
                raise _lost(_LOGLESS, self._path, name)
        self._known = *self._file, *(self._logs[0] or ()), *(self._logs[1] or ())
        if self._clock is not None and self._watch is None and None not in self._logs:
            self._watch = self._begin_watch()
            if self._watch is not None:
                self._look()  # once more: what happened before is not reported

    def _begin_watch(self) -> Watch | None:
        if os.path.realpath(self._path) != str(self._path):
            return None  # the target of a link may change, and the kernel does not report that
        # The file itself is written only when the log is copied into it, or when another program empties it.
        files = {str(self._path): NAME | CONTENT} | dict.fromkeys(self._beside, NAME)
        return watch(files, map(str, self._path.parents))


def find(path: Path) -> Identity:
    """Return the identity of the file that is at this path, where one was open.

    :raises StoreLost: it is gone, or nothing is left in it
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise _lost(_DELETED, path) from None
    except OSError as error:
        raise _lost("{path} cannot be looked at: {error}; then {reopen}", path, error=error) from error
    if not found.st_size:  # SQLite writes its first page before anything else, and never removes it
        raise _lost(_EMPTIED, path)
    return identity_of(found)


def refuse_empty(connection: apsw.Connection, path: Path) -> None:
    """Refuse a file without tables, in which a new store would be made in place of a lost one; :raises StoreLost:"""
    if not connection.execute("SELECT count(*) FROM sqlite_schema").get:
        raise _lost(_EMPTIED, path)


def has_moved(connection: apsw.Connection) -> bool:
    """Return whether the path of a connection's file leads to another file by now, as far as the system knows."""
    answer = ctypes.c_int(0)
    known = connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return known and bool(answer.value)


def _identity(name: str) -> Identity | None:
    found = Inodes([name]).look()
    return None if found is None else found[0]


def _lost(text: str, path: Path, log: str = "", error: object = None) -> StoreLost:
    return StoreLost(text.format(path=path, log=log, error=error, reopen=_REOPEN), outcome="unknown")
