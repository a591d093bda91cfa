"""Whether something may have happened to files since they were last checked; by inotify, so on Linux alone.

Checking three files by their names after a commit takes a twentieth of the time of the commit: the kernel has to find
each again, and its caches are cold. Checking whether it has an event is one short call.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import select
import threading
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["CONTENT", "LISTING", "NAME", "Watch", "watch"]

NAME = 0x4 | 0x400 | 0x800
"""IN_ATTRIB (which reports links), IN_DELETE_SELF, IN_MOVE_SELF: whether a path still leads to the same file."""
CONTENT = 0x2
"""IN_MODIFY: whether it was written to, or emptied."""
LISTING = 0x100 | 0x200 | 0x40 | 0x80
"""IN_CREATE, IN_DELETE, IN_MOVED_FROM, IN_MOVED_TO: which files a directory has."""
_MOVED = 0x400 | 0x800
"""IN_DELETE_SELF, IN_MOVE_SELF: whether a directory is still where it was."""
_ADD = 0x20000000
"""IN_MASK_ADD: another may watch the same file for something else."""
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class _Events:
    """The events of a process. One instance serves all of it, because a user may have only 128."""

    def __init__(self) -> None:
        """:raises OSError: the user has the maximum of instances; AttributeError, TypeError: another system"""
        library: Any = ctypes.CDLL(None, use_errno=True)
        self._add, self._remove = library.inotify_add_watch, library.inotify_rm_watch
        self.file: int = library.inotify_init1(_FLAGS)
        if self.file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._lock = threading.Lock()
        self._users: dict[int, int] = {}
        """How many use each watch: the kernel has one of a file, however often it is requested."""
        self._numbers = itertools.count(1)
        self.number = 0
        """How often there was something; counted before the events are read, so that who finds none finds it higher."""

    def add(self, path: str, mask: int) -> int:
        """Watch this file, too; return the number of the watch. :raises OSError:"""
        with self._lock:
            number: int = self._add(self.file, os.fsencode(path), mask | _ADD)
            if number < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", path)
            self._users[number] = self._users.get(number, 0) + 1
        return number

    def remove(self, number: int) -> None:
        """Undo one ``add``."""
        with self._lock:
            left = self._users.pop(number) - 1
            if left:
                self._users[number] = left
            else:
                self._remove(self.file, number)  # which fails if the file is gone, and the watch with it

    def take(self) -> None:
        """Read all events, of all users."""
        self.number = next(self._numbers)
        try:
            os.read(self.file, 65536)
        except OSError:  # another thread was faster; or the file was closed, and there are no events any more
            pass


_of_process: dict[int, _Events] = {}
"""By process id: a forked child must not read its parent's events."""


def _events() -> _Events:
    found = _of_process.get(os.getpid())
    if found is None:
        made = _Events()
        found = _of_process.setdefault(os.getpid(), made)
        if found is not made:  # another thread was faster
            os.close(made.file)
    return found


class Watch:
    """Watched paths of one user; until it is closed."""

    __slots__ = ("_events", "_numbers", "_poll", "_seen")

    def __init__(self) -> None:
        """Watch nothing yet; :raises OSError: or another error where it is not supported"""
        self._events = _events()
        self._seen = self._events.number
        self._numbers: list[int] = []
        poll = select.poll()
        poll.register(self._events.file, select.POLLIN)
        self._poll = poll.poll

    def add(self, path: str, mask: int) -> None:
        """Watch this path, too; :raises OSError:"""
        self._numbers.append(self._events.add(path, mask))

    def close(self) -> None:
        """Stop watching."""
        numbers, self._numbers = self._numbers, []
        for number in numbers:
            self._events.remove(number)

    def is_quiet(self) -> bool:
        """Return whether nothing happened since the last call."""
        events = self._events
        try:
            if self._poll(0):
                events.take()
        except RuntimeError:  # two threads call it at the same moment
            return False
        if events.number == self._seen:
            return True
        self._seen = events.number
        return False


def watch(what: Mapping[str, int], folders: Iterable[str] = ()) -> Watch | None:
    """Watch these paths, each for its events, and that these folders stay in their places.

    None: it cannot be done here, or not for all of them.
    """
    try:
        made = Watch()
    except (OSError, AttributeError, TypeError):  # the user has the maximum, or another system
        return None
    try:
        for path, mask in what.items():
            made.add(path, mask)
        for folder in folders:
            made.add(folder, _MOVED)
    except OSError:  # one is missing, or this user may not read it
        made.close()
        return None
    return made
