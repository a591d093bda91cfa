"""Liveness: when a worker is dead, when a passed deadline counts, and when a worker is shown as silent.

A watcher judges death and deadlines by polls and not by time stamps. It reads the store again and again, and counts on
its own monotonic time how long the reply has stayed the same. So a store that stood still, or a clock that was set,
kills no worker. A worker is shown as silent by the time of its last beat: where no sweeper is left, the dead must not
be shown as living.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from headrace.core.defaults import Rules
from headrace.core.status import Cause
from headrace.core.times import length

__all__ = [
    "POLL_BEAT_RATIO",
    "Seen",
    "SoleVoice",
    "Watch",
    "died_together",
    "is_certain",
    "is_dead",
    "is_gone",
    "is_late",
    "patience",
    "silent_since",
    "time_to_return",
    "told_silence",
]


K = TypeVar("K", bound=Hashable)

POLL_BEAT_RATIO = 0.85
"""The pause between two looks, as a share of a beat: three looks fit into a lease, and none is further from the one
before than ``Rules.look_gap``."""

_MIN_DEATH_POLLS = 3
"""How many looks it takes to call a worker dead."""
_LATE_BEAT_RATIO, _UNDER_WAY_SECONDS = 1.2, 0.5
"""How late a beat may be that is on time, as a share of its cadence, and the seconds until it is in the store: a hub
gathers beats, and whoever beats looks at its clock now and then."""
_CERTAIN = frozenset({None, Cause.LEASE, Cause.BEAT})


class Seen(NamedTuple):
    """How long one thing was seen without a change."""

    looks: int
    seconds: float


_NEVER = Seen(0, 0.0)


def is_dead(seen: Seen, rules: Rules, earlier: float = 0.0, lease: float | None = None) -> bool:
    """Whether a worker is dead whose beat number was seen unchanged for so long: a whole lease, in three looks.

    ``lease``: the worker's own, if it has one. ``earlier``: seconds that others saw the same number. They count, but
    whoever buries has seen it for half a beat as well: a store that comes back after an outage hears the living within
    that time.
    """
    lease = rules.lease if lease is None else lease
    own = seen.looks >= _MIN_DEATH_POLLS and seen.seconds >= min(rules.beat / 2, lease)
    return own and seen.seconds + earlier >= lease


def patience(lease: float, grace: float | None) -> float:
    """For how long a worker may be silent: for its lease, or, if its connection to a hub closed without a goodbye, for
    ``grace`` from then on. Whoever is heard again, at any hub, has its lease again."""
    return lease if grace is None else min(lease, grace)


def time_to_return(grace: float, cadence: float) -> float:
    """In how many seconds a worker must be heard of again that was cut off: in ``grace``, and in no less than one beat
    takes. Who lives may not have noticed the cut, and says its next word when it was told to, ``cadence`` after its
    last one, which may have been said just before."""
    return max(grace, _LATE_BEAT_RATIO * cadence + _UNDER_WAY_SECONDS)


def is_gone(seen: Seen, after: float) -> bool:
    """Whether a worker is dead for whom nothing was held for so long: found twice, ``after`` seconds apart."""
    return seen.looks > 1 and seen.seconds >= after


def died_together(processes: Iterable[tuple[str, int]]) -> bool:
    """Whether workers that were found dead at the same time, by host and process, were killed by no single job.

    What a job kills is one process, with all the workers in it. What it takes along can kill again only after the
    burial. So several processes at once ended of something else: a power cut, a deployment, a network.
    """
    return len(set(processes)) > 1


def is_late(seen: Seen, rules: Rules) -> bool:
    """Whether a deadline that was seen as passed for so long counts: seen twice, half a beat apart.

    A store that was frozen past the deadline also kept the worker from writing what it had to say. So the worker gets
    the time to do so before its job is taken from it.
    """
    return seen.looks > 1 and seen.seconds >= rules.beat / 2


def is_certain(cause: Cause | None) -> bool:
    """Whether a job can be decided about at the first look.

    That is so where no deadline is involved: the job expired by itself (``None``: no cause to take it from a worker),
    its worker was buried, or its worker said by its beats that it does not have the job.
    """
    return cause in _CERTAIN


class SoleVoice:
    """Whether one hub alone speaks for a worker, as the numbers tell that its own beats are answered with.

    Only then does it say something about the worker that a connection to this hub closed. A hub that was frozen and
    hears late of the end of a connection finds that others have beaten for the worker since.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """That of the last beat that is known of here; None: there is none, and nothing to tell others by."""
        self._others_at = float("-inf")

    def came(self, number: int) -> None:
        """The worker came, and is heard here from now on; ``number``: its number, as the store had it before. One that
        is older than what is known here tells nothing."""
        if self.number is None or number > self.number:
            self.number, self._others_at = number, float("-inf")

    def answered(self, number: int, now: float) -> None:
        """A beat was answered with this number."""
        if self.number is not None and number != self.number + 1:
            self._others_at = now
        self.number = number

    def is_sole(self, now: float, every: float) -> bool:
        """Whether nobody else was heard to beat for it for two times ``every``, in which it must be heard of once."""
        return self.number is not None and now - self._others_at > 2 * every


class Watch(Generic[K]):
    """Remembers how long each thing was seen, look by look; a gap between looks forgets everything.

    A look lasts from ``before`` (asked) to ``after`` (answered), and what it shows was so at some moment in between.
    So what lasted is counted from the answer of the first look to the question of the last, and a gap from question
    to answer: a look that hung in a frozen store is itself a gap.
    """

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._last: float | None = None
        self._since: dict[K, float] = {}
        self._seen: dict[K, Seen] = {}

    def look(self, keys: Iterable[K], before: float, after: float) -> None:
        """Count a look that saw these; whatever it did not see is forgotten."""
        known = self._since
        if after - (before if self._last is None else self._last) > self._gap:
            known = {}
        self._last = before
        seen, since = self._seen, dict[K, float]()
        self._seen = {}
        for key in keys:
            start = known.get(key)
            if start is None:
                since[key], self._seen[key] = after, Seen(1, 0.0)
            else:
                since[key], self._seen[key] = start, Seen(seen[key].looks + 1, before - start)
        self._since = since

    def add(self, keys: Iterable[K], after: float) -> None:
        """Count these as seen by the same look, which went on."""
        for key in keys:
            if key not in self._since:
                self._since[key], self._seen[key] = after, Seen(1, 0.0)

    def of(self, key: K) -> Seen:
        """How long this one was seen."""
        return self._seen.get(key, _NEVER)


def silent_since(beat_at: datetime, now: datetime, lease: float) -> datetime | None:
    """Since when a worker is silent: its last beat, if that is longer ago than its lease; else None."""
    return beat_at if (now - beat_at).total_seconds() > lease else None


def told_silence(since: datetime, now: datetime) -> str:
    """For how long it has been silent, in words."""
    return f"silent for {length((now - since).total_seconds())}"
