"""Hints between the processes that share a file: datagrams over Unix sockets in a directory only their user may enter.

Every session that listens binds a socket there, and the socket's file name says what it listens for, so that a sender
reads the directory and wakes nobody else. Where there are no such sockets, hints stay within the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec

from headrace.engine.bus import Hint, LocalBus, Topic
from headrace.host import Host

__all__ = ["LETTERS", "SocketBus", "room_of"]

LETTERS = {
    Topic.READY: "r",
    Topic.FREED: "f",
    Topic.ENDED: "e",
    Topic.CANCEL: "c",
    Topic.PROGRESS: "p",
    Topic.ENTRIES: "n",
    Topic.SETTINGS: "s",
}
"""What a socket's file name ends in, for each topic somebody there listens for."""

_MOST = 60_000
"""Bytes in one datagram."""
_LONGEST = 100
"""Bytes in the path of a socket; systems differ, none allows much more."""
_FRESH = 1.0
"""Seconds a listing is trusted when the directory's own time stamp shows no change."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Hint).decode


def room_of(path: Path) -> Path:
    """Where the sessions on this file meet."""
    name = sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"headrace-{os.getuid() if hasattr(os, 'getuid') else 0}-{name}"


class SocketBus:
    """One session's ear and voice; loses hints rather than wait or fail."""

    def __init__(self, path: Path, host: Host) -> None:
        self._path, self._host = path, host
        self._local = LocalBus()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room: Path | None = None
        self._ear: socket.socket | None = None
        self._voice: socket.socket | None = None
        self._own = ""
        self._name = ""
        self._others: list[str] = []
        self._listed: tuple[int, float] = (-1, 0.0)

    def open(self) -> None:
        """Begin to listen and to speak, on the loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._own = f"{self._host.dice.token():016x}"
        self._listed = (-1, 0.0)
        try:
            self._room = _enter(room_of(self._path))
            self._voice = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._voice.setblocking(False)
        except (OSError, AttributeError):
            self._room = None  # polling finds out what nobody tells
        self._attend()

    def close(self) -> None:
        """Fall silent and deaf."""
        self._hang_up()
        if self._voice is not None:
            self._voice.close()
        if self._room is not None:
            with contextlib.suppress(OSError):  # others are still in it
                self._room.rmdir()
        self._loop = self._room = self._voice = None

    def send(self, hint: Hint) -> None:
        """Pass it on; never blocks, never fails."""
        loop = self._loop
        if loop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to listen
            if _here(loop):
                loop.call_soon(self._local.deliver, hint)
            else:
                loop.call_soon_threadsafe(self._local.deliver, hint)
        if self._room is not None and self._voice is not None:
            with contextlib.suppress(OSError, UnicodeError):
                self._speak(self._room, self._voice, hint)

    def wanted(self, topic: Topic) -> bool:
        """Whether anybody may be listening."""
        if topic in self._local.topics:
            return True
        if self._room is None:
            return False
        try:
            return bool(self._listening(self._room, topic))
        except OSError:
            return True

    def listen(self, topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
        """Call ``listener`` on this session's loop for each hint of these topics."""
        unlisten = self._local.listen(topics, listener)
        self._attend()

        def leave() -> None:
            unlisten()
            self._attend()

        return leave

    # -- speaking

    def _speak(self, room: Path, voice: socket.socket, hint: Hint) -> None:
        others = self._listening(room, hint.topic)
        if not others:
            return
        for data in _split(hint):
            for name in others:
                try:
                    voice.sendto(data, str(room / name))
                except (ConnectionRefusedError, FileNotFoundError):  # its owner is gone, or listens for something else
                    self._listed = (-1, 0.0)
                    _remove(room / name)
                except OSError:  # too slow to listen: it will look by itself
                    pass

    def _listening(self, room: Path, topic: Topic) -> list[str]:
        letter = LETTERS[topic]
        return [name for name in self._list(room) if letter in name.partition(".")[2]]

    def _list(self, room: Path) -> list[str]:
        stamp, now = room.stat().st_mtime_ns, self._host.clock.monotonic()
        if stamp != self._listed[0] or not 0 <= now - self._listed[1] < _FRESH:
            self._others = [name for name in os.listdir(room) if not name.startswith(self._own)]
            self._listed = (stamp, now)
        return self._others

    # -- listening

    def _attend(self) -> None:
        """Let the socket's name say what is listened for."""
        if self._room is None or self._loop is None:
            return
        letters = "".join(sorted(LETTERS[topic] for topic in self._local.topics))
        name = f"{self._own}.{letters}" if letters else ""
        if name == self._name:
            return
        try:
            if not name:
                self._hang_up()
            elif self._ear is None:
                _enter(self._room)  # whoever left last took it away
                self._pick_up(self._room / name, self._loop)
            else:
                os.rename(self._room / self._name, self._room / name)
            self._name = name
        except (OSError, NotImplementedError):
            self._hang_up()

    def _pick_up(self, place: Path, loop: asyncio.AbstractEventLoop) -> None:
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            ear.setblocking(False)
            ear.bind(str(place))
            loop.add_reader(ear.fileno(), self._hear)
        except BaseException:
            ear.close()
            _remove(place)
            raise
        self._ear = ear

    def _hang_up(self) -> None:
        ear, name = self._ear, self._name
        self._ear, self._name = None, ""
        if ear is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(ear.fileno())
            ear.close()
        if self._room is not None and name:
            _remove(self._room / name)

    def _hear(self) -> None:
        while self._ear is not None:
            try:
                data = self._ear.recv(2 * _MOST)
            except OSError:  # nothing more for now
                return
            try:
                hint = _decode(data)
            except msgspec.DecodeError:
                continue
            self._local.deliver(hint)


def _here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _enter(room: Path) -> Path:
    """The directory, made if missing; refuses one that others could write to."""
    if len(os.fsencode(room)) > _LONGEST - 32:
        raise OSError(f"{room} is too long a path for sockets")
    with contextlib.suppress(FileExistsError):
        room.mkdir(mode=0o700)
    found = room.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{room} is not this user's alone")
    return room


def _split(hint: Hint) -> list[bytes]:
    """The hint in pieces that fit into a datagram."""
    data = _encode(hint)
    if len(data) <= _MOST:
        return [data]
    if len(hint.names) < 2:
        return []
    half = len(hint.names) // 2
    return [*_split(Hint(hint.topic, hint.names[:half])), *_split(Hint(hint.topic, hint.names[half:]))]


def _remove(place: Path) -> None:
    with contextlib.suppress(OSError):
        place.unlink()
