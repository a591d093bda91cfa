"""The listening connection of a session: open only while there are listeners, and probed once a beat.

A connection can die without an error. So the session notifies itself through its pool, on a channel of its own, and
expects to receive that. With this probe it announces to other sessions the topics that it listens for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.engine.bus import Hint, Topic
from headrace.engines.postgres.bus.notify import Call, Channels, Notice, Notification
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses

if TYPE_CHECKING:
    import asyncpg

__all__ = ["ON_DEMAND", "Connect", "Listener"]

_log = logging.getLogger("headrace.postgres")

ON_DEMAND = frozenset({Topic.FREED, Topic.ENDED, Topic.PROGRESS, Topic.ENTRIES, Topic.CHANGED})
"""Topics with hints that are sent only while some session requests them: there is at least one such hint per job."""

_MISSED = (Topic.READY, Topic.SETTINGS, Topic.CHANGED)
"""Topics of which listeners get a hint when some may have been missed; the others are polled often enough."""

_CONNECT_TIMEOUT_SECONDS = 10.0
"""Seconds to connect, or to change the channels."""
_CLOSE_TIMEOUT_SECONDS = 2.0
"""Seconds to close the connection in good order."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 5.0
_MAX_CALL_SECONDS = 60.0
_PAUSE_SECONDS = 0.05

Connect = Callable[[], Awaitable["asyncpg.Connection[asyncpg.Record]"]]

_notice = msgspec.json.Decoder(Notice).decode
_call = msgspec.json.Decoder(Call).decode
_encode = msgspec.json.Encoder().encode


class _Lost(Exception):
    """The connection is unusable."""


class Listener:
    """Listens for one session; reconnects whenever the connection is lost."""

    def __init__(
        self,
        connect: Connect,
        host: Host,
        channels: Channels,
        own: str,
        *,
        beat: float,
        topics: Callable[[], frozenset[Topic]],
        deliver: Callable[[Hint], None],
        say: Callable[[Sequence[Notification]], None],
    ) -> None:
        self._connect, self._host, self._channels, self._own, self._beat = connect, host, channels, own, beat
        self._topics, self._deliver, self._say = topics, deliver, say
        self._patience = beat * 0.75
        """Seconds within which a probe must arrive, so that a dead connection is found within two beats."""
        self.hears = False
        """Whether there is a connection that listens."""
        self._stirred = asyncio.Event()
        self._wanted_until: dict[str, float] = {}
        self._complained = False
        self._probe, self._heard_probe = 0, 0
        """The number of the latest probe, and of the latest one received."""
        self._missing: float | None = None
        """Since when a probe that was sent to the present connection is missing."""
        self._first = 0
        """The first probe meant for the present connection."""
        self._signed_at, self._sign_at = 0.0, 0.0
        """When the last probe was sent, and when the next is due."""

    def stir(self) -> None:
        """Read the topics again, because they have changed."""
        self._stirred.set()

    def wants(self, topic: str) -> bool:
        """Return whether another session has recently requested hints of this topic."""
        return self._wanted_until.get(topic, 0.0) > self._host.clock.monotonic()

    def said(self, signs: Sequence[Notification]) -> None:
        """Expect the probe from now on, because it is committed; it may have arrived already."""
        if self._missing is None and max(self._heard_probe + 1, self._first) <= int(signs[0][1]):
            self._missing = self._host.clock.monotonic()
            self._stirred.set()

    async def run(self) -> None:
        """Listen whenever there is somebody to listen for, until cancelled."""
        pauses = Pauses(self._host, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, spread=(0.5, 1.0))
        while True:
            self._stirred.clear()
            if not self._topics():
                await self._stirred.wait()
                continue
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                    connection = await self._connect()
            except Exception as error:
                self._complain(error)
            else:
                await self._use(connection)
                if self._heard_probe >= self._first or not self._topics():  # the connection did work
                    pauses.reset()
                    continue
            await pauses.sleep()

    async def _use(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._first, self._missing = self._probe + 1, None
        try:
            connection.add_termination_listener(self._ended)
            await self._serve(connection)
        except Exception as error:
            self._complain(error)
            connection.terminate()
        finally:
            self.hears = False
            if not connection.is_closed():
                try:
                    await connection.close(timeout=_CLOSE_TIMEOUT_SECONDS)
                except Exception as error:
                    _log.debug("the listening connection did not end in good order: %s", error)

    async def _serve(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Keep the channels up to date and send probes, until there are no listeners.

        :raises _Lost: the connection is dead.
        """
        tuned: set[str] = set()
        demand: frozenset[Topic] = frozenset()
        while True:
            self._stirred.clear()
            topics = self._topics()
            if not topics:
                return
            if connection.is_closed():
                raise _Lost("the connection was closed")
            await self._tune(connection, tuned, topics)
            await self._check()
            now, new = self._host.clock.monotonic(), not self.hears
            if new or now >= self._sign_at or not topics & ON_DEMAND <= demand:
                demand = topics & ON_DEMAND
                self.hears = True
                self._give_sign(demand, now, asks=new)
            due = self._sign_at if self._missing is None else min(self._sign_at, self._missing + self._patience)
            await self._host.wait(self._stirred, max(0.0, due - now))

    async def _check(self) -> None:
        for last in (False, True):
            if self._missing is None or self._host.clock.monotonic() - self._missing < self._patience:
                return
            if not last:  # this process may have been halted: let the loop read what came in meanwhile
                await self._host.sleep(_PAUSE_SECONDS)
        raise _Lost("nothing is heard on the connection")

    async def _tune(
        self, connection: asyncpg.Connection[asyncpg.Record], tuned: set[str], topics: frozenset[Topic]
    ) -> None:
        """Listen on the channels of these topics and no others; send a hint to listeners that may have missed one."""
        always = {self._channels.calls, self._channels.private(self._own)}
        channels = always | {self._channels.of(topic) for topic in topics}
        if channels == tuned:
            return
        async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
            for channel in sorted(channels - tuned):
                await connection.add_listener(channel, self._heard)
            for channel in sorted(tuned - channels):
                await connection.remove_listener(channel, self._heard)
        for topic in _MISSED:
            if self._channels.of(topic) in channels - tuned:
                asyncio.get_running_loop().call_soon(self._deliver, Hint(topic))
        tuned.clear()
        tuned.update(channels)

    def _give_sign(self, demand: frozenset[Topic], now: float, *, asks: bool) -> None:
        self._probe += 1
        signs = [(self._channels.private(self._own), str(self._probe))]
        if demand or asks:
            call = Call(self._own, tuple(sorted(demand)), self._beat * 1.5, asks)
            signs.append((self._channels.calls, _encode(call).decode()))
        self._signed_at, self._sign_at = now, now + (self._beat / 2 if demand else self._beat)
        self._say(signs)

    # -- received notifications

    def _ended(self, connection: Any) -> None:
        self._stirred.set()

    def _heard(self, connection: Any, pid: int, channel: str, payload: Any) -> None:
        try:
            if channel == self._channels.private(self._own):
                return self._take_probe(int(payload))
            if channel == self._channels.calls:
                return self._take_call(_call(payload))
            notice, topic = _notice(payload), self._channels.topics[channel]
        except (ValueError, KeyError):  # not a notification of headrace
            return None
        if notice.sender != self._own:
            self._deliver(Hint(topic, notice.names, notice.dropped))
        return None

    def _take_probe(self, probe: int) -> None:
        self._missing, self._heard_probe = None, probe
        if self._complained and probe >= self._first:
            self._complained = False
            _log.info("hints are heard again")

    def _take_call(self, call: Call) -> None:
        if call.sender == self._own:
            return
        now = self._host.clock.monotonic()
        for topic in call.topics:
            self._wanted_until[topic] = max(
                self._wanted_until.get(topic, 0.0), now + min(call.lasts, _MAX_CALL_SECONDS)
            )
        if call.asks and self._topics() & ON_DEMAND:
            # Reply soon, but once for all sessions that request it at about the same time.
            self._sign_at = min(self._sign_at, max(now, self._signed_at + min(_PAUSE_SECONDS, self._beat / 20)))
            self._stirred.set()

    def _complain(self, error: Exception) -> None:
        """Log that no hints arrive; as a warning only once per outage."""
        log = _log.debug if self._complained else _log.warning
        log("hints are not heard, jobs are looked for instead: %s", error or type(error).__name__)
        self._complained = True
