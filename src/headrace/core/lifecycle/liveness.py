"""Liveness: when a worker is dead, when a passed deadline counts, and when a worker is shown as silent.

A watcher judges death and deadlines by polls and not by time stamps. It reads the store again and again, and counts on
its own monotonic time how long the reply has stayed the same. So a store that hung, or a clock that was set, kills no
worker. A worker is shown as silent by the time of its last beat: where no sweeper is left, dead workers must not be
shown as alive.
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
    "poll_in",
    "silent_since",
    "time_to_return",
    "told_silence",
]


K = TypeVar("K", bound=Hashable)

POLL_BEAT_RATIO = 0.85
"""The pause between two polls, as a share of a beat: three fit into a lease, each gap into ``Rules.look_gap``."""

_MIN_DEATH_POLLS = 3
"""How many polls it takes to declare a worker dead."""
_LATE_BEAT_RATIO, _UNDER_WAY_SECONDS = 1.2, 0.5
"""How late a beat on time may be, as a share of its cadence, and the seconds until it is in the store: a hub gathers
beats, and a worker checks its clock only now and then."""
_CERTAIN = frozenset({None, Cause.LEASE, Cause.BEAT})


class Seen(NamedTuple):
    """How long one thing was seen without a change."""

    looks: int
    seconds: float


_NEVER = Seen(0, 0.0)


def is_dead(seen: Seen, rules: Rules, earlier: float = 0.0, lease: float | None = None) -> bool:
    """Return whether a worker is dead if its beat number was seen unchanged for so long: a whole lease, in three polls.

    ``lease``: the worker's own, if it has one. ``earlier``: seconds that others saw the same number. They count, but
    the process that buries has seen it for half a beat as well: after an outage of the store, living workers beat
    within that time.
    """
    lease = rules.lease if lease is None else lease
    own = seen.looks >= _MIN_DEATH_POLLS and seen.seconds >= min(rules.beat / 2, lease)
    return own and seen.seconds + earlier >= lease


def patience(lease: float, grace: float | None) -> float:
    """Return for how long a worker may be silent: for its lease, or, if its connection to a hub closed without a
    goodbye, for ``grace`` from then on. A worker that beats again, at any hub, has its lease again."""
    return lease if grace is None else min(lease, grace)


def time_to_return(grace: float, cadence: float) -> float:
    """Return in how many seconds a disconnected worker must beat again: ``grace``, and at least the time of one beat. A
    living worker may not have noticed the cut, and sends its next beat as scheduled, ``cadence`` after its last one,
    which may have been just before the cut."""
    return max(grace, _LATE_BEAT_RATIO * cadence + _UNDER_WAY_SECONDS)


def is_gone(seen: Seen, after: float) -> bool:
    """Return whether a worker that holds nothing is dead: found so twice, ``after`` seconds apart."""
    return seen.looks > 1 and seen.seconds >= after


def died_together(processes: Iterable[tuple[str, int]]) -> bool:
    """Return whether workers that were found dead at the same time, by host and process, were killed by no single job.

    A job kills one process, with all the workers in it. The jobs lost with it can kill again only after the burial. So
    several processes at once died of something else: a power cut, a deployment, a network.
    """
    return len(set(processes)) > 1


def is_late(seen: Seen, rules: Rules, steady: float = 0.0) -> bool:
    """Return whether a deadline that was seen as passed for so long counts: seen twice, ``Rules.recheck`` apart if the
    store had replied before, as shown by the ``steady`` seconds for which it has without a gap; else half a beat apart.

    A store that was frozen past the deadline also kept the worker from writing. So the worker gets time to do so before
    its job is taken away. A write that failed is repeated within two seconds, which polls before, at and after a
    deadline span.
    """
    apart = rules.recheck if steady - seen.seconds >= rules.recheck / 2 else rules.beat / 2
    return seen.looks > 1 and seen.seconds >= apart


def poll_in(next_in: float | None, rules: Rules, *, unsettled: bool) -> float:
    """Return in how many seconds the sweeper polls for deadlines; infinite: when it does so anyway.

    ``next_in``: seconds until the next deadline; ``unsettled``: whether one has passed that does not count yet. The
    first poll comes before the deadline: it shows that the store replies (``is_late``).
    """
    if unsettled:
        return rules.recheck
    if next_in is None:
        return float("inf")
    early = next_in - rules.recheck
    return max(rules.recheck / 2, early if early > 0 else next_in)


def is_certain(cause: Cause | None) -> bool:
    """Return whether a job can be decided on at the first poll.

    That is so where no deadline is involved: the job expired by itself (``None``: no cause to take it from a worker),
    its worker was buried, or its worker's beats say that it does not have the job.
    """
    return cause in _CERTAIN


class SoleVoice:
    """Whether one hub alone beats for a worker, by the numbers in the replies to its beats.

    Only then does a closed connection to this hub say something about the worker. A hub that was frozen and learns late
    that a connection closed finds that others have beaten for the worker since.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """The number of the last beat known here; None: there is none, and other hubs cannot be noticed."""
        self._others_at = float("-inf")

    def came(self, number: int) -> None:
        """Note that the worker connected here; ``number``: its number as the store had it before. An older one than the
        number known here says nothing."""
        if self.number is None or number > self.number:
            self.number, self._others_at = number, float("-inf")

    def answered(self, number: int, now: float) -> None:
        """Note the number in the reply to a beat."""
        if self.number is not None and number != self.number + 1:
            self._others_at = now
        self.number = number

    def is_sole(self, now: float, every: float) -> bool:
        """Return whether no other hub beat for it within twice ``every``, the time in which it must beat once."""
        return self.number is not None and now - self._others_at > 2 * every


class Watch(Generic[K]):
    """Remembers how long each thing was seen, poll by poll; a gap between polls forgets everything.

    A poll lasts from ``before`` (request) to ``after`` (reply), and what it shows was so at some moment in between. So
    a duration is counted from the reply of the first poll to the request of the last, and a gap from request to reply:
    a poll that hung in a frozen store is itself a gap.
    """

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._last: float | None = None
        self._since: dict[K, float] = {}
        self._seen: dict[K, Seen] = {}

    def look(self, keys: Iterable[K], before: float, after: float) -> None:
        """Count a poll that saw these; all others are forgotten."""
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
        """Count these as seen by the same poll, which continued."""
        for key in keys:
            if key not in self._since:
                self._since[key], self._seen[key] = after, Seen(1, 0.0)

    def of(self, key: K) -> Seen:
        """Return how long this one was seen."""
        return self._seen.get(key, _NEVER)


def silent_since(beat_at: datetime, now: datetime, lease: float) -> datetime | None:
    """Return since when a worker is silent: its last beat, if that is longer ago than its lease; else None."""
    return beat_at if (now - beat_at).total_seconds() > lease else None


def told_silence(since: datetime, now: datetime) -> str:
    """Return for how long it has been silent, in words."""
    return f"silent for {length((now - since).total_seconds())}"
