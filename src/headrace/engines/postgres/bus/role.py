"""Hints between the sessions on one schema: NOTIFY through the session's pool, LISTEN on a connection of its own.

Hints about ends, progress and other changes of jobs are sent only if a session may be waiting for them. A session that
waits announces that to all that listen, at once and then every half beat. A session with workers listens, so it knows
which sessions wait.

A session without a listening connection at the moment cannot know, so it sends these hints: it ends few jobs, or will
soon know again. A session that can never know, behind a pooler without a ``listen_url``, does not send them: it may be
one of many busy workers where no session can listen, and waiting sessions poll there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from headrace.engine.bus import Hint, LocalBus, Topic
from headrace.engines.postgres.bus.listener import ON_DEMAND, Connect, Listener
from headrace.engines.postgres.bus.notify import Channels, Notice, Notification, Throttle
from headrace.runtime.host import Host

__all__ = ["NotifyBus"]

_log = logging.getLogger("headrace.postgres")

_CLOSE_TIMEOUT_SECONDS = 2.0
"""Seconds for sending the last hints, and again for the tasks to end."""

_CARRIED_SECONDS = 0.02
"""Seconds within which the hint of an insert follows the notification of its statement."""

_TICK_SECONDS = 0.001
"""Minimum seconds to wait: timers of uvloop count whole milliseconds, and fire a part of one too early."""

_MAX_WAITING_CHANGES = 10
"""How many hints about changes may wait to be sent; of more, only the number of changes is sent."""

_READY, _CHANGED = Topic.READY, Topic.CHANGED  # looked up once: in Python 3.11 that is a call

_notice = msgspec.json.Decoder(Notice).decode


class NotifyBus:
    """Sends and receives the hints of one session; it loses hints rather than wait or fail."""

    def __init__(
        self,
        schema: str,
        host: Host,
        *,
        notify: Callable[[Sequence[Notification]], Awaitable[None]],
        connect: Connect | None,
        beat: float,
    ) -> None:
        self._host, self._notify, self._connect, self._beat = host, notify, connect, beat
        self._channels = Channels(schema)
        self._local = LocalBus()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._begin()

    def _begin(self) -> None:
        self._own = f"{self._host.dice.token():016x}"
        self._throttle = Throttle()
        self._signs: list[Notification] = []
        """The probe and the announcement of the listener, which are sent with the next hints."""
        self._changes: list[Hint] = []
        """Hints about changes that are to be sent."""
        self._carried: dict[str, tuple[int, float]] = {}
        """Queues with hints that were sent within a statement: how many times, and until when that counts."""
        self._said = asyncio.Event()
        self._looks_at = math.inf
        """When the sender runs next, if it is not woken (monotonic)."""
        self._closing = False
        self._listener = (
            None
            if self._connect is None
            else Listener(
                self._connect,
                self._host,
                self._channels,
                self._own,
                beat=self._beat,
                topics=lambda: self._local.topics,
                deliver=self._local.deliver,
                say=self._give_sign,
            )
        )

    # -- open and close

    def open(self) -> None:
        """Begin to send on the running loop, and to listen as soon as there is a listener."""
        self._loop = asyncio.get_running_loop()
        self._begin()
        self._tasks = [self._loop.create_task(self._speak(), name="headrace-voice")]
        if self._listener is not None:
            self._tasks.append(self._loop.create_task(self._listener.run(), name="headrace-listener"))

    async def close(self) -> None:
        """Send the hints that still wait, through the pool, then stop sending and listening."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        voice, *listeners = tasks
        self._closing = True
        self._said.set()
        for listener in listeners:
            listener.cancel()
        await asyncio.wait({voice}, timeout=_CLOSE_TIMEOUT_SECONDS)
        self._loop = None
        voice.cancel()
        # With a timeout: a server that does not reply must not keep a program from ending.
        await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_SECONDS)
        for task in tasks:
            task.add_done_callback(_settle)

    # -- the contract

    def send(self, hint: Hint) -> None:
        """Send a hint; never blocks, never fails."""
        loop = self._loop
        if loop is None:
            return
        if asyncio._get_running_loop() is loop:
            self._send(loop, hint)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has no listeners any more
                loop.call_soon_threadsafe(self._send, loop, hint)

    def wanted(self, topic: Topic) -> bool:
        """Return whether this topic may have a listener."""
        return topic in self._local.topics or self._wanted_elsewhere(topic)

    def listen(self, topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
        """Call ``listener`` on this session's loop for each hint of these topics."""
        unlisten = self._local.listen(topics, listener)
        self._stir()

        def leave() -> None:
            unlisten()
            self._stir()

        return leave

    def _stir(self) -> None:
        if self._listener is not None:
            self._listener.stir()

    def _send(self, loop: asyncio.AbstractEventLoop, hint: Hint) -> None:
        if hint.topic in self._local.topics:
            loop.call_soon(self._local.deliver, hint)
        if not self._wanted_elsewhere(hint.topic):
            return
        if hint.topic is _CHANGED:  # the sender of these has spaced them
            self._add_change(hint)
            self._said.set()
            return
        names: Sequence[str] = hint.names
        if self._carried and names and hint.topic is _READY:
            names = [name for name in names if not self._was_carried(name)]
            if not names:
                return
        # Otherwise others of its group wait, and it goes with them; or the sender runs in time by itself.
        if self._throttle.add(hint.topic, names) and (self._throttle.due() or 0.0) < self._looks_at:
            self._said.set()

    def _add_change(self, hint: Hint) -> None:
        if len(self._changes) < _MAX_WAITING_CHANGES:
            self._changes.append(hint)
        else:  # the server is away, or slow
            last = self._changes[-1]
            self._changes[-1] = Hint(Topic.CHANGED, last.names, last.dropped + len(hint.names) + hint.dropped)

    def _wanted_elsewhere(self, topic: Topic) -> bool:
        if topic not in ON_DEMAND:
            return True
        listener = self._listener
        return listener is not None and (not listener.hears or listener.wants(topic))

    # -- hints within a statement

    def ready_now(self, queues: Iterable[str]) -> list[Notification]:
        """Return notifications for the caller's own statement, for those of these queues that may be hinted now.

        Once the statement is committed, pass them to ``ready_told``; if it failed, forget them.
        """
        names = self._throttle.pass_by(_READY, queues, self._host.clock.monotonic())
        return self.written(Hint(_READY, tuple(names)), own=True) if names else []

    def ready_told(self, notifications: Sequence[Notification]) -> None:
        """Remember that these were committed, so that the next ``send`` does not notify other sessions again."""
        if not notifications:
            return
        until = self._host.clock.monotonic() + _CARRIED_SECONDS
        for _, payload in notifications:
            names = _notice(payload).names
            self._throttle.passed_by(Topic.READY, names)
            for name in names:
                self._carried[name] = (self._carried.get(name, (0, 0.0))[0] + 1, until)

    def written(self, hint: Hint, *, own: bool = False) -> list[Notification]:
        """Return a hint as notifications, to be sent within a statement or a transaction.

        All listeners receive them; with ``own``, all but those of this session, to which it delivers the hint itself.
        """
        return self._channels.notifications(hint, self._own if own else "")

    def _was_carried(self, name: str) -> bool:
        times, until = self._carried.pop(name, (0, 0.0))
        if not times or self._host.clock.monotonic() > until:
            return False
        if times > 1:
            self._carried[name] = (times - 1, until)
        return True

    # -- sending

    def _give_sign(self, signs: Sequence[Notification]) -> None:
        self._signs = list(signs)  # an older probe that could not be sent yet is useless now
        self._said.set()

    async def _speak(self) -> None:
        while True:
            self._said.clear()
            closing, now = self._closing, self._host.clock.monotonic()
            signs, self._signs = self._signs, []
            changes, self._changes = self._changes, []
            hints = [*self._throttle.take(now, everything=closing), *changes]
            pairs = [*signs, *(pair for hint in hints for pair in self.written(hint, own=True))]
            if pairs:
                await self._tell(pairs, signs)
            elif closing:
                return
            else:
                due = self._throttle.due()
                rest = None if due is None else max(_TICK_SECONDS, due - now)
                self._looks_at = math.inf if rest is None else now + rest
                await self._host.wait(self._said, rest)

    async def _tell(self, pairs: list[Notification], signs: list[Notification]) -> None:
        try:
            await self._notify(pairs)
        except Exception as error:
            _log.debug("%d hints could not be sent: %s", len(pairs), error)
        else:
            if signs and self._listener is not None:
                self._listener.said(signs)


def _settle(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a part of the bus broke down", exc_info=error)
