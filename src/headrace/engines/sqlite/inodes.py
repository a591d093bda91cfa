"""Which files are at some paths, asked without reading their times.

Since Linux 6.13 a file whose times were read, as ``os.stat`` does, is given the exact time by its next write. On ext4
without a journal the next ``fdatasync`` then writes that time, too: two requests to the disk for each commit, and not
one. ``statx`` can be asked for the rest alone, but Python offers it only from 3.15 on.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from struct import Struct
from typing import Any

__all__ = ["Identity", "Inodes", "identity_of"]

Identity = tuple[int, ...]
"""Of each path: inode, and the device, by its major and minor number."""

_AT_FDCWD = -100
_INO_AND_SIZE = 0x300
_SIZE = 256
_WHICH, _LENGTH = "32xQ96xII112x", "40xQ"
"""Identity and size within a ``struct statx``, which is the same on all machines."""


def _statx() -> Any:
    """The function of the C library, if there is one and the kernel lets us call it."""
    try:
        # By ``PyDLL``: the call takes a microsecond, and to give up the interpreter for it would take many.
        found: Any = ctypes.PyDLL(None).statx
    except (AttributeError, OSError, TypeError):
        return None
    found.restype = ctypes.c_int
    answer = ctypes.create_string_buffer(_SIZE)
    return found if found(_AT_FDCWD, b"/", 0, _INO_AND_SIZE, answer) == 0 else None


_STATX = _statx()


class Inodes:
    """The files at these paths, as often as is asked; for one thread at a time."""

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
        """Which files are there, and the size of the first; None if any is missing or cannot be looked at."""
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
    """Which file that is."""
    if not hasattr(os, "major"):  # on Windows
        return found.st_ino, found.st_dev, 0
    return found.st_ino, os.major(found.st_dev), os.minor(found.st_dev)
