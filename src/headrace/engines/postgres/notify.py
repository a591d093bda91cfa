"""Hints as PostgreSQL carries them: which channel, what payload, and how often."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from zlib import crc32

import msgspec

from headrace.engine.bus import Hint, Topic

__all__ = ["GAP", "Call", "Channels", "Notice", "Notification", "Throttle", "split"]

Notification = tuple[str, str]
"""A channel and a payload, as pg_notify takes them."""

GAP = 0.02
"""Seconds between two notifications of one topic and group of names: each takes a lock that all commits share."""
BURST = 9
"""How many may come sooner, if none came for as long before: jobs that trickle in are told at once."""
GROUPS = 16
"""Names are told apart by so many groups: a busy queue holds up the hints of few others, and the rate stays bounded."""

_MOST = 7900
"""Bytes in one payload; the server takes less than 8000."""
_MOST_QUEUES = 300
"""Queues beyond which everybody is woken instead of naming them."""
_MOST_WAITING = 1000
"""Names of a group that wait to be told, beyond which more are dropped: whoever wants to know of them asks."""
_LONGEST_CHANNEL = 63

_encode = msgspec.json.Encoder().encode


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A hint on the channel of its topic."""

    sender: str
    """The session that delivers it to its own listeners by itself; empty: nobody does."""
    names: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True, array_like=True):
    """What a session says about itself to the others."""

    sender: str
    topics: tuple[Topic, ...]
    """What it listens for, of the topics that are not always told."""
    lasts: float
    """Seconds for which that may be relied upon."""
    asks: bool
    """Whether it wants to hear the same from the others."""


class Channels:
    """The names of one schema's channels."""

    def __init__(self, schema: str) -> None:
        longest = max(len(f"headrace::{word}") for word in (*Topic, "0" * 16))
        if len(schema.encode()) > _LONGEST_CHANNEL - longest:
            schema = sha256(schema.encode()).hexdigest()[:32]
        self._stem = f"headrace:{schema}:"
        self.calls = f"{self._stem}calls"
        self.topics = {f"{self._stem}{topic}": topic for topic in Topic}

    def of(self, topic: Topic) -> str:
        """Where the hints of a topic go."""
        return f"{self._stem}{topic}"

    def private(self, session: str) -> str:
        """Where a session hears itself."""
        return f"{self._stem}{session}"

    def notifications(self, hint: Hint, sender: str) -> list[Notification]:
        """The hint in pieces that fit into a payload."""
        return [(self.of(hint.topic), _encode(Notice(sender, names)).decode()) for names in split(hint)]


def split(hint: Hint) -> list[tuple[str, ...]]:
    """The names of a hint, in as many parts as payloads are needed; one part without names is for everybody."""
    if hint.topic is Topic.READY and len(hint.names) > _MOST_QUEUES:
        return [()]
    parts, part, size = list[tuple[str, ...]](), list[str](), 0
    for name in hint.names:
        length = _length(name)
        if length > _MOST:
            if hint.topic is Topic.READY:
                return [()]
            continue
        if size + length > _MOST:
            parts.append(tuple(part))
            part, size = [], 0
        part.append(name)
        size += length
    return [*parts, tuple(part)] if part or not hint.names else parts


def _length(name: str) -> int:
    try:
        return len(_encode(name)) + 1
    except UnicodeError:  # no text can hold it
        return _MOST + 1


class Throttle:
    """What is to be told to other sessions: at once if its group was not told lately, together with more if it was."""

    def __init__(self, gap: float = GAP, burst: int = BURST) -> None:
        self._gap, self._ahead = gap, gap * burst
        self._free: dict[tuple[Topic, int], float] = {}
        """When a group may be told again."""
        self._waiting: dict[tuple[Topic, int], dict[str, None]] = {}

    def add(self, topic: Topic, names: Iterable[str]) -> None:
        """Have this told; no names: to everybody."""
        empty = True
        for name in names:
            empty = False
            waiting = self._waiting.setdefault((topic, _group(name)), {})
            if len(waiting) < _MOST_WAITING:
                waiting[name] = None
        if empty:
            self._waiting.setdefault((topic, GROUPS), {})

    def take(self, now: float, *, everything: bool = False) -> list[Hint]:
        """What may be told now, or all there is; it counts as told."""
        due = [key for key in self._waiting if everything or self._free.get(key, now) <= now]
        told: dict[Topic, list[str] | None] = {}
        for key in due:
            self._tell(key, now)
            topic, names = key[0], self._waiting.pop(key)
            before = told.setdefault(topic, [])
            if key[1] == GROUPS:
                told[topic] = None
            elif before is not None:
                before.extend(names)
        return [Hint(topic, tuple(names or ())) for topic, names in told.items()]

    def pass_by(self, topic: Topic, names: Iterable[str], now: float) -> list[str]:
        """Those of these names that may be told now, by somebody else; they count as told."""
        free = [name for name in names if self._free.get((topic, _group(name)), now) <= now]
        for key in {(topic, _group(name)) for name in free}:
            self._tell(key, now)
        return free

    def _tell(self, key: tuple[Topic, int], now: float) -> None:
        # Each pushes the next one off by a gap, and what was not used before counts for as many as may come sooner.
        self._free[key] = max(self._free.get(key, 0.0), now - self._ahead) + self._gap

    def due(self) -> float | None:
        """When there is something to tell; None: nothing waits."""
        return min((self._free.get(key, 0.0) for key in self._waiting), default=None)


def _group(name: str) -> int:
    return crc32(name.encode("utf-8", "surrogatepass")) % GROUPS
