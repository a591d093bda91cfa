"""Hints between the processes that share a file: datagrams over Unix sockets in a directory only their user may enter.

Every session that listens binds a socket there, and the socket's file name has its topics, so that a sender reads the
directory and wakes only listeners. Where there are no such sockets, hints stay within the session.
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
from headrace.engines.sqlite.store.inotify import LISTING, NAME, Watch, watch
from headrace.runtime.host import Host

__all__ = ["LETTERS", "SocketBus", "directory_of"]

LETTERS = {
    Topic.READY: "r",
    Topic.FREED: "f",
    Topic.ENDED: "e",
    Topic.CANCEL: "c",
    Topic.PROGRESS: "p",
    Topic.ENTRIES: "n",
    Topic.SETTINGS: "s",
    Topic.DEADLINE: "d",
    Topic.CHANGED: "h",
}
"""The letter in the name of a socket for each topic with a listener there."""

_MAX_DATAGRAM_BYTES = 60_000
"""Bytes in one datagram."""
_MAX_PATH_BYTES = 100
"""Bytes in the path of a socket; systems differ, none allows much more."""
_LISTING_CACHE_SECONDS = 1.0
"""For how many seconds a listing is valid while no change is known."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Hint).decode


def directory_of(path: Path) -> Path:
    """Return the directory in which the sessions on this file have their sockets."""
    name = sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"headrace-{os.getuid() if hasattr(os, 'getuid') else 0}-{name}"


class SocketBus:
    """The role ``bus`` of one session: a socket to receive on, and one to send from.

    It loses hints rather than wait or fail.
    """

    def __init__(self, path: Path, host: Host) -> None:
        self._path, self._host = path, host
        self._local = LocalBus()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._directory: Path | None = None
        self._place = ""
        """The same as a text, which is faster to check."""
        self._receiver: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._own = ""
        self._name = ""
        self._others: list[str] = []
        self._listed, self._listed_at = 0, 0.0
        """The time stamp of the directory as it was listed, 0 if it must be listed again; and when that was."""
        self._watch: Watch | None = None
        self._process = 0

    def open(self) -> None:
        """Begin to send and to receive, on the running loop."""
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self._own = f"{self._host.dice.token():016x}"
        self._listed = 0
        try:
            self._directory = _make_directory(directory_of(self._path))
            self._place = str(self._directory)
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        except (OSError, AttributeError):
            self._directory = None  # without hints, other sessions are polled for
        self._update_name()

    def close(self) -> None:
        """Stop sending and receiving."""
        if self._process != os.getpid():  # forked: the socket and its listeners are the parent's
            self._loop = None
            return
        self._unbind()
        if self._sender is not None:
            self._sender.close()
        if self._watch is not None:
            self._watch.close()
        if self._directory is not None:
            with contextlib.suppress(OSError):  # others are still in it
                self._directory.rmdir()
        self._loop = self._directory = self._sender = self._watch = None

    def send(self, hint: Hint) -> None:
        """Send a hint; never blocks, never fails."""
        # A thread that submits on its own may still be here while the session is closed on its loop.
        loop, directory, sender = self._loop, self._directory, self._sender
        if loop is None:
            return
        if hint.topic in self._local.topics:  # else the loop is not woken for it
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has no listeners any more
                if _here(loop):
                    loop.call_soon(self._local.deliver, hint)
                else:
                    loop.call_soon_threadsafe(self._local.deliver, hint)
        if directory is not None and sender is not None:
            try:
                if self._list(directory):
                    self._send_to_others(directory, sender, hint)
            except (OSError, UnicodeError):
                pass

    def wanted(self, topic: Topic) -> bool:
        """Return whether there may be a listener."""
        if topic in self._local.topics:
            return True
        if self._directory is None:
            return False
        try:
            return bool(self._listening(self._directory, topic))
        except OSError:
            return True

    def listen(self, topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
        """Call ``listener`` on this session's loop for each hint of these topics."""
        unlisten = self._local.listen(topics, listener)
        self._update_name()

        def leave() -> None:
            unlisten()
            self._update_name()

        return leave

    # -- sending

    def _send_to_others(self, directory: Path, sender: socket.socket, hint: Hint) -> None:
        others = self._listening(directory, hint.topic)
        if not others:
            return
        for data in _split(hint):
            for name in others:
                try:
                    sender.sendto(data, str(directory / name))
                except (ConnectionRefusedError, FileNotFoundError):  # its owner is gone, or listens for something else
                    self._listed = 0
                    _remove(directory / name)
                except OSError:  # the receiver is too slow: it will poll
                    pass

    def _listening(self, directory: Path, topic: Topic) -> list[str]:
        letter = LETTERS[topic]
        return [name for name in self._list(directory) if letter in name.partition(".")[2]]

    def _list(self, directory: Path) -> list[str]:
        now = self._host.clock.monotonic()
        fresh = self._listed and 0 <= now - self._listed_at < _LISTING_CACHE_SECONDS
        if not fresh or not (self._is_as_listed() if self._watch is None else self._watch.is_quiet()):
            # Again each time: the directory may be another one. And first: a socket added meanwhile is found next time.
            before, self._watch = self._watch, watch({self._place: NAME | LISTING})
            if before is not None:
                before.close()
            self._listed = os.stat(self._place).st_mtime_ns
            self._others = [name for name in os.listdir(directory) if not name.startswith(self._own)]
            self._listed_at = now
        return self._others

    def _is_as_listed(self) -> bool:
        return os.stat(self._place).st_mtime_ns == self._listed

    # -- receiving

    def _update_name(self) -> None:
        """Name the socket after its topics."""
        if self._directory is None or self._loop is None:
            return
        letters = "".join(sorted(LETTERS[topic] for topic in self._local.topics))
        name = f"{self._own}.{letters}" if letters else ""
        if name == self._name:
            return
        try:
            if not name:
                self._unbind()
            elif self._receiver is None:
                _make_directory(self._directory)  # the last session to leave removes it
                self._bind(self._directory / name, self._loop)
            else:
                os.rename(self._directory / self._name, self._directory / name)
            self._name = name
        except (OSError, NotImplementedError):
            self._unbind()

    def _bind(self, place: Path, loop: asyncio.AbstractEventLoop) -> None:
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            receiver.setblocking(False)
            receiver.bind(str(place))
            os.chmod(place, 0o600)  # the umask decides its mode before; no other user can enter the directory
            loop.add_reader(receiver.fileno(), self._receive)
        except BaseException:
            receiver.close()
            _remove(place)
            raise
        self._receiver = receiver

    def _unbind(self) -> None:
        receiver, name = self._receiver, self._name
        self._receiver, self._name = None, ""
        if receiver is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(receiver.fileno())
            receiver.close()
        if self._directory is not None and name:
            _remove(self._directory / name)

    def _receive(self) -> None:
        while self._receiver is not None:
            try:
                data = self._receiver.recv(2 * _MAX_DATAGRAM_BYTES)
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


def _make_directory(directory: Path) -> Path:
    """Return the directory, made if missing; refuse one that others could write to."""
    if len(os.fsencode(directory)) > _MAX_PATH_BYTES - 32:
        raise OSError(f"{directory} is too long a path for sockets")
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{directory} is not this user's alone")
    return directory


def _split(hint: Hint) -> list[bytes]:
    """Return the hint in pieces that fit into a datagram."""
    data = _encode(hint)
    if len(data) <= _MAX_DATAGRAM_BYTES:
        return [data]
    if len(hint.names) < 2:
        return []
    half = len(hint.names) // 2
    first = Hint(hint.topic, hint.names[:half], hint.dropped)
    return [*_split(first), *_split(Hint(hint.topic, hint.names[half:]))]


def _remove(place: Path) -> None:
    with contextlib.suppress(OSError):
        place.unlink()
