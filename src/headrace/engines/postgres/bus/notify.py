"""Hints as notifications of PostgreSQL: on which channel, with what payload, and how often."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from zlib import crc32

import msgspec

from headrace.engine.bus import Hint, Topic

__all__ = ["GAP_SECONDS", "Call", "Channels", "Notice", "Notification", "Throttle", "split"]

Notification = tuple[str, str]
"""A channel and a payload, as pg_notify takes them."""

GAP_SECONDS = 0.01
"""Seconds between two notifications of one topic and group of names, in the long run.

Each notification takes a lock that all commits share. At fifty jobs a second, hints are sent at once.
"""
BURST_NOTIFICATIONS = 9
"""How many notifications may be sent without that gap after a quiet time, so that hints of a few jobs go at once."""
NAME_GROUPS = 16
"""How many groups names are put in: a busy queue delays the hints of few other queues, and the rate stays bounded."""

_MAX_PAYLOAD_BYTES = 7900
"""Bytes in one payload; the server takes less than 8000."""
_MAX_HINT_QUEUES = 300
"""Maximum queues that a hint names; with more, it names none and wakes all listeners."""
_MAX_WAITING_NAMES = 1000
"""How many names of a group may wait to be sent; more are dropped, and their listeners poll."""
_MAX_CHANNEL_CHARACTERS = 63

_encode = msgspec.json.Encoder().encode


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A hint on the channel of its topic."""

    sender: str
    """The session that has delivered the hint to its own listeners itself; empty if none has."""
    names: tuple[str, ...] = ()
    dropped: int = 0


class Call(msgspec.Struct, frozen=True, array_like=True):
    """What a session announces to the others: which hints it wants."""

    sender: str
    topics: tuple[str, ...]
    """The topics it listens for, of those with hints only on demand; another version may name unknown ones."""
    lasts: float
    """For how many seconds this call counts."""
    asks: bool
    """Whether the others should send their calls now."""


class Channels:
    """The names of one schema's channels."""

    def __init__(self, schema: str) -> None:
        longest = max(len(f"headrace::{word}") for word in (*Topic, "0" * 16))
        if len(schema.encode()) > _MAX_CHANNEL_CHARACTERS - longest:
            schema = sha256(schema.encode()).hexdigest()[:32]
        self._stem = f"headrace:{schema}:"
        self.calls = f"{self._stem}calls"
        self.topics = {f"{self._stem}{topic}": topic for topic in Topic}

    def of(self, topic: Topic) -> str:
        """Return the channel for the hints of a topic."""
        return f"{self._stem}{topic}"

    def private(self, session: str) -> str:
        """Return the channel on which a session sends probes to itself."""
        return f"{self._stem}{session}"

    def notifications(self, hint: Hint, sender: str) -> list[Notification]:
        """Return the hint as notifications with payloads that are short enough."""
        notices = [Notice(sender, names) for names in split(hint)]
        if hint.dropped:
            notices[:1] = [Notice(sender, notices[0].names if notices else (), hint.dropped)]
        return [(self.of(hint.topic), _encode(notice).decode()) for notice in notices]


def split(hint: Hint) -> list[tuple[str, ...]]:
    """Return the names of a hint in parts, one for each payload; a part without names is for all listeners."""
    if hint.topic is Topic.READY and len(hint.names) > _MAX_HINT_QUEUES:
        return [()]
    parts, part, size = list[tuple[str, ...]](), list[str](), 0
    for name in hint.names:
        length = _length(name)
        if length > _MAX_PAYLOAD_BYTES:
            if hint.topic is Topic.READY:
                return [()]
            continue
        if size + length > _MAX_PAYLOAD_BYTES:
            parts.append(tuple(part))
            part, size = [], 0
        part.append(name)
        size += length
    return [*parts, tuple(part)] if part or not hint.names else parts


def _length(name: str) -> int:
    try:
        return len(_encode(name)) + 1
    except UnicodeError:  # a lone surrogate, which no payload can contain
        return _MAX_PAYLOAD_BYTES + 1


class Throttle:
    """Decides when hints go to other sessions: at once, or later and together if their group had one just before."""

    def __init__(self, gap: float = GAP_SECONDS, burst: int = BURST_NOTIFICATIONS) -> None:
        self._gap, self._ahead = gap, gap * burst
        self._free: dict[tuple[Topic, int], float] = {}
        """When the next hint of a group may be sent."""
        self._waiting: dict[tuple[Topic, int], dict[str, bool]] = {}
        """By group, the names that wait; True: a statement under way carries all that waited for this name."""

    def add(self, topic: Topic, names: Iterable[str]) -> bool:
        """Add a hint to be sent; without names it is for all listeners. Return whether ``due`` may be earlier now."""
        empty, before = True, len(self._waiting)
        for name in names:
            empty = False
            waiting = self._waiting.setdefault((topic, _group(name)), {})
            if len(waiting) < _MAX_WAITING_NAMES or name in waiting:
                waiting[name] = False
        if empty:
            self._waiting.setdefault((topic, NAME_GROUPS), {})
        return len(self._waiting) > before

    def take(self, now: float, *, everything: bool = False) -> list[Hint]:
        """Return the hints that may be sent now, or all that wait; they count as sent."""
        due = [key for key in self._waiting if everything or self._free.get(key, now) <= now]
        told: dict[Topic, list[str] | None] = {}
        for key in due:
            self._tell(key, now)
            topic, names = key[0], self._waiting.pop(key)
            before = told.setdefault(topic, [])
            if key[1] == NAME_GROUPS:
                told[topic] = None
            elif before is not None:
                before.extend(names)
        return [Hint(topic, tuple(names or ())) for topic, names in told.items()]

    def pass_by(self, topic: Topic, names: Iterable[str], now: float) -> list[str]:
        """Return those of these names that the caller may send now itself; they count as sent.

        Once they are, it calls ``passed_by``.
        """
        free, told = list[str](), set[tuple[Topic, int]]()
        for name in names:
            key = topic, _group(name)
            ahead = self._free.get(key, now) - now
            if ahead > self._gap / 2:
                continue
            waiting = self._waiting.get(key, {})
            # A hint that waits alone in its group is sent up to half a gap early. That saves a statement for it, and
            # the rate stays, because the time of the next one is counted from its own time.
            if ahead <= 0.0 or (len(waiting) == 1 and name in waiting):
                free.append(name)
                told.add(key)
                if name in waiting:
                    waiting[name] = True
        for key in told:
            self._tell(key, now)
        return free

    def passed_by(self, topic: Topic, names: Iterable[str]) -> None:
        """Note that these were sent: what waited for them when that began need not be sent any more."""
        for name in names:
            key = topic, _group(name)
            waiting = self._waiting.get(key)
            if waiting is not None and waiting.get(name):
                del waiting[name]
                if not waiting:
                    del self._waiting[key]

    def _tell(self, key: tuple[Topic, int], now: float) -> None:
        # Each hint moves the moment of the next by a gap. After a quiet time that moment is in the past, by as many
        # gaps as a burst may have.
        self._free[key] = max(self._free.get(key, 0.0), now - self._ahead) + self._gap

    def due(self) -> float | None:
        """Return when the next hint may be sent; None if none waits."""
        return min((self._free.get(key, 0.0) for key in self._waiting), default=None)


@lru_cache(1024)
def _group(name: str) -> int:
    return crc32(name.encode("utf-8", "surrogatepass")) % NAME_GROUPS
