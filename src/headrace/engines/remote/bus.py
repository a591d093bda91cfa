"""Hints between this session and a hub, over a WebSocket that also shows that a worker lives; only for speed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from headrace.engine import Attended, Hint, LocalBus, Topic
from headrace.engine.wire import Hints, Listening, decode, encode
from headrace.engines.remote.connection import Address
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["PROOF", "RemoteBus"]

PROOF = "hub "
"""The prefix of a proof that names a connection to a hub, which no engine can judge."""

_log = logging.getLogger("headrace.remote")

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 10.0
_CONNECT_TIMEOUT_SECONDS = 10.0
_CLOSE_TIMEOUT_SECONDS = 2.0
"""Seconds to send the last hints."""
_PING_SECONDS = 20.0
"""Seconds between two signs of life of a silent connection."""
_MAX_WAITING_HINTS = 1000
"""Hints that may wait for a connection; of more, only their topics are sent."""
_MAX_FRAME_HINTS = 20
"""Hints in one frame: with a thousand names each they are well below the limit of a hub."""
_FIRST_CONNECT_SECONDS = 1.0
"""Seconds that a worker waits for its first connection, before it registers without one."""
_LINGER_SECONDS = 5.0
"""Seconds for which a topic stays listened for without a listener here: many listen again at once."""


class RemoteBus:
    """Sends and receives the hints of one session. It connects when there is a listener, or something to send.

    A hint of this session goes to the hub, which sends it to all listeners, this session among them: so it comes back
    once, in the order in which others receive it.
    """

    def __init__(self, address: Address, host: Host, beat: float) -> None:
        self._address, self._host, self._beat = address, host, beat
        self._local = LocalBus()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._outbox: list[Hint] = []
        self._said = asyncio.Event()
        """Set when there is something to send to the hub."""
        self._sent = asyncio.Event()
        self._sent.set()
        """Set when all that was to be sent is on its way."""
        self._told: frozenset[Topic] = frozenset()
        """The topics that the hub knows are listened for here."""
        self._missed: frozenset[Topic] = frozenset()
        """The topics of a lost connection: hints of these may have been missed."""
        self._wanted: frozenset[Topic] | None = None
        self._worker: UUID | None = None
        """The worker of this session."""
        self._told_of: UUID | None = None
        """The worker that the hub knows by the present connection."""
        self._shows = asyncio.Event()
        """Set while the hub knows the worker."""
        self._proof = ""
        """Another one for each connection."""
        self._patience = _FIRST_CONNECT_SECONDS

    # -- open and close

    def open(self) -> None:
        """Take part, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._begin()
        self._task = self._loop.create_task(self._run(), name="headrace-hints")
        if self._local.topics:
            self._said.set()

    async def close(self) -> None:
        """Send the hints that still wait, and leave."""
        task, self._task, self._loop = self._task, None, None
        if task is None:
            return
        await self._host.wait(self._sent, _CLOSE_TIMEOUT_SECONDS)
        task.cancel()
        # With a limit: a hub that does not reply must not keep a program from ending.
        await asyncio.wait({task}, timeout=_CLOSE_TIMEOUT_SECONDS)

    # -- the contract

    def send(self, hint: Hint) -> None:
        self._on_loop(lambda: self._send(hint))

    def wanted(self, topic: Topic) -> bool:
        wanted = self._wanted
        return wanted is None or topic in wanted or topic in self._local.topics

    def listen(self, topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
        unlisten = self._local.listen(topics, listener)
        self._on_loop(self._said.set)

        def stop() -> None:
            unlisten()
            if (loop := self._loop) is not None:
                self._on_loop(lambda: loop.call_later(_LINGER_SECONDS, self._said.set))

        return stop

    async def attend(self, worker: UUID) -> Attended | None:
        """Show the hub by the connection of this session that this worker lives; None: there is none for now.

        The hub notifies the others if the connection ends without a goodbye. A worker that notices it beats at once,
        and again when it has another connection; one that does not notice beats on schedule.
        """
        if self._task is None:
            return None
        self._worker = worker
        if self._told_of != worker:
            self._shows.clear()
            self._said.set()
            patience, self._patience = self._patience, 0.0
            await self._host.wait(self._shows, patience)
        return Attended(self._proof, judged=False) if self._told_of == worker else None

    def _on_loop(self, work: Callable[[], object]) -> None:
        if (loop := self._loop) is None:
            return
        if asyncio._get_running_loop() is loop:
            work()
        else:
            with suppress(RuntimeError):  # the loop is closed: it has no listeners any more
                loop.call_soon_threadsafe(work)

    def _send(self, hint: Hint) -> None:
        if len(self._outbox) >= _MAX_WAITING_HINTS:
            self._outbox = [Hint(topic) for topic in {one.topic for one in self._outbox}]
        self._outbox.append(hint)
        self._sent.clear()
        self._said.set()

    # -- the connection

    async def _run(self) -> None:
        monotonic = self._host.clock.monotonic
        pauses = Pauses(self._host, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, spread=(0.5, 1.5))
        while True:
            await self._said.wait()
            if not self._local.topics and not self._outbox and self._worker is None:
                self._said.clear()
                continue
            began = monotonic()
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                    connection = await self._connect()
                try:
                    await self._serve(connection)
                finally:
                    with suppress(Exception):
                        await connection.close()
            except Exception as error:
                _log.debug("no hints from %s for now: %s", self._address, error)
            self._missed |= self._told
            self._told, self._wanted, self._told_of = frozenset(), None, None
            self._shows.clear()
            self._said.set()
            if monotonic() - began > 2 * _MAX_PAUSE_SECONDS:  # else a hub that accepts only to close is asked at once
                pauses.reset()
            await pauses.sleep()

    async def _connect(self) -> ClientConnection:
        from websockets.asyncio.client import connect

        return await connect(
            self._address.hints,
            additional_headers=self._address.headers,
            compression=None,
            proxy=None,
            max_size=None,
            open_timeout=None,
            close_timeout=_CLOSE_TIMEOUT_SECONDS,
            ping_interval=_PING_SECONDS,
            ping_timeout=_PING_SECONDS,
        )

    async def _serve(self, connection: ClientConnection) -> None:
        """Send and receive on an open connection, until it ends."""
        saying = asyncio.create_task(self._say(connection), name="headrace-hints-out")
        try:
            async for frame in connection:
                self._hear(frame)
        finally:
            saying.cancel()
            await asyncio.wait({saying})
            if not saying.cancelled():
                saying.exception()  # the connection was lost, as is known here

    async def _say(self, connection: ClientConnection) -> None:
        self._proof = f"{PROOF}{self._host.dice.token():x}"
        try:
            while True:
                self._said.clear()
                topics, hints, worker = self._local.topics, tuple(self._outbox[:_MAX_FRAME_HINTS]), self._worker
                del self._outbox[:_MAX_FRAME_HINTS]
                attends = None if worker is None or worker == self._told_of else (worker, self._proof)
                if hints or topics != self._told or attends is not None:
                    self._told = topics
                    beat = None if attends is None else self._beat
                    await connection.send(encode(Listening(topics, hints, attends, beat)))
                    if attends is not None:
                        self._told_of = worker
                        self._shows.set()
                if not self._outbox:
                    self._sent.set()
                    await self._said.wait()
        except (ValueError, TypeError):  # a hint that cannot be written is lost; the socket must go on
            _log.exception("hints could not be sent, connecting anew")
            await connection.close()

    def _hear(self, frame: str | bytes) -> None:
        try:
            told: Hints = decode(frame if isinstance(frame, bytes) else frame.encode(), Hints)
        except msgspec.MsgspecError:
            # Perhaps of a version that knows more topics: whatever it was, all listeners check.
            self._look(self._local.topics)
            return
        if told.wanted is not None:
            self._wanted = told.wanted
        if told.heard is not None:
            back = self._missed & told.heard
            self._missed -= told.heard
            self._look(back)
        for hint in told.hints:
            self._local.deliver(hint)

    def _look(self, topics: Iterable[Topic]) -> None:
        """Make all listeners check, since hints of these topics may have been missed."""
        for topic in topics:
            self._local.deliver(Hint(topic))
