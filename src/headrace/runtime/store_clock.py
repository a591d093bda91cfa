"""The store's time: what the server's clock said last, and the time that has passed since.

All processes on one store must agree on what time it is: delays, deadlines, leases and schedules are moments. The clock
of this machine may be wrong, the server's is the one that all share. A store that is a file of this machine, or its
memory, has no other clock than this machine's, and then neither is measured.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.core.lifecycle.clock_steps import ClockStep
from headrace.runtime.clock import Clock

__all__ = ["Asked", "StoreClock"]

MAX_AGE_SECONDS = 30.0
"""Seconds after which a writer measures again."""
_MAX_SAMPLES = 8
_MIN_STEP_SECONDS = 1.0
"""A jump of more seconds than this is a step, and not how inexact a measurement is."""
_DRIFT_SECONDS = 0.1
"""Seconds by which measurements may contradict each other because clocks do not run alike."""
_READING_SECONDS = 0.05
"""Seconds that the reading of several clocks may take to be one reading."""
_MAX_STEPS = 1000
_EVER = float("-inf")
_from_timestamp = datetime.fromtimestamp


class _Sample(NamedTuple):
    """A measurement: the round trip, and the store's time less ``uptime``, known to half a round trip."""

    trip: float
    ahead: float


class Asked(NamedTuple):
    """When the request for the store's time was sent."""

    passed: float
    jumps: int


class _Reading(NamedTuple):
    """How far the other clocks are ahead of the monotonic one."""

    wall: float
    uptime: float
    now: float


class StoreClock:
    """A clock that shows the store's time once it has been measured, and this machine's until then.

    ``now`` never goes back because a measurement was more exact than the one before: it stands still until time has
    caught up. A step of the store's clock is followed, back as well as forward.

    It is used from several threads. ``now`` takes no lock.
    """

    def __init__(self, local: Clock) -> None:
        self.local = local
        """This machine's clock."""
        self.monotonic: Callable[[], float] = local.monotonic
        """Seconds that never step."""
        uptime = getattr(local, "uptime", None)
        self._counts_sleep = uptime is not None
        # Time that passes while the machine sleeps passes in the store as well, so it is counted where it can be.
        self._passed: Callable[[], float] = uptime or local.monotonic
        self._anchor: tuple[float, float] | None = None
        """How far the store's time is ahead of ``_passed``, and the moment before which ``now`` must not go back."""
        self._samples: tuple[_Sample, ...] = ()
        self._measured_at = self._looked_at = 0.0
        self._unsure, self._jumps = False, 0
        self._steps: tuple[ClockStep, ...] = ()
        self._reading = self._read()
        self._lock = threading.Lock()
        _clocks.add(self)

    def now(self) -> datetime:
        """The store's time: aware, in UTC."""
        if (anchor := self._anchor) is None:
            return self.local.now()
        ahead, floor = anchor
        at = self._passed() + ahead
        # Not by ``max``, which takes three times as long: every job reads the time.
        return _from_timestamp(at if at >= floor else floor, UTC)  # noqa: FURB136, see above

    def uptime(self) -> float:
        """Seconds that count on while the machine sleeps; where it has no such clock, by the wall clock."""
        return self._passed() if self._counts_sleep else self.local.now().timestamp()

    @property
    def apart(self) -> float:
        """Seconds that this machine's clock is ahead of the store's time."""
        return 0.0 if self._anchor is None else (self.local.now() - self.now()).total_seconds()

    # -- measuring

    async def measure(self, ask: Callable[[], Awaitable[datetime | None]]) -> None:
        """Measure the store's time by requesting it; None: it has this machine's. The first time, and whenever this
        clock was unsure, it measures twice, since the first reply may have had to wait for a connection."""
        self.look()
        for _ in range(1 if self._samples and not self._unsure else 2):
            asked = self.asking()
            said = await ask()
            if said is None:
                self._forget()
                return
            self.told(asked, said)

    def asking(self) -> Asked:
        """What to pass to ``told`` with the reply to a request that is about to be sent."""
        self.look()
        return Asked(self._passed(), self._jumps)

    def told(self, asked: Asked, said: datetime) -> None:
        """Count a measurement: the request was sent then, and the store has just replied that this is its time."""
        with self._lock:
            self._look()
            if asked.jumps == self._jumps:  # else the machine slept, or its clock was set, before the reply came
                self._count(asked, said)

    def _count(self, asked: Asked, said: datetime) -> None:
        answered = self._passed()
        new = _Sample(answered - asked.passed, said.timestamp() - (asked.passed + answered) / 2)
        anchor, stepped = self._anchor, False
        if anchor is None:
            self._samples, self._anchor = (new,), (new.ahead, _EVER)
        else:
            best = min(self._samples)
            stepped = abs(new.ahead - best.ahead) > (new.trip + best.trip) / 2 + _MIN_STEP_SECONDS
            agreeing = () if stepped or self._unsure else (one for one in self._samples if _agree(one, new))
            samples = (*agreeing, new)[-_MAX_SAMPLES:]
            ahead, floor = anchor
            self._samples = samples
            self._anchor = min(samples).ahead, _EVER if stepped else max(floor, answered + ahead)
        self._measured_at, self._unsure = answered, False
        if stepped:
            self._look()
        else:
            self._reading = self._read()  # to know better is no step

    def _forget(self) -> None:
        """Go by this machine's clock from now on: the store is another one."""
        with self._lock:
            self._look()
            if self._anchor is not None:
                self._samples, self._anchor, self._unsure = (), None, False
                self._reading = self._read()

    def after_fork(self) -> None:
        """Go on with a lock that no thread holds."""
        self._lock = threading.Lock()

    def now_unless_old(self) -> datetime | None:
        """``now``, for what is about to be written; None: measure again before that."""
        if (anchor := self._anchor) is None:
            return self.local.now()
        passed = self._passed()
        if passed - self._looked_at > _MIN_STEP_SECONDS:
            self.look()
        if self._unsure or passed - self._measured_at > MAX_AGE_SECONDS:
            return None
        ahead, floor = anchor
        at = passed + ahead
        return _from_timestamp(at if at >= floor else floor, UTC)  # noqa: FURB136, as in ``now``

    @property
    def is_unsure(self) -> bool:
        """Whether to measure again before anything is judged: the machine slept, or its clock was set."""
        self.look()
        return self._unsure and self._anchor is not None

    # -- steps

    @property
    def steps(self) -> tuple[ClockStep, ...]:
        """All steps of the store's time against monotonic time that were noticed here, oldest first."""
        return self._steps

    def look(self) -> None:
        """Notice whether a clock has stepped since the last check; of little use if that was long ago."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        self._looked_at = self._passed()
        last, found = self._reading, self._read()
        self._reading = found
        if abs(found.now - last.now) > _MIN_STEP_SECONDS:
            self._steps = (*self._steps, ClockStep(self.now(), found.now - last.now))[-_MAX_STEPS:]
        if abs(found.wall - last.wall) > _MIN_STEP_SECONDS or abs(found.uptime - last.uptime) > _MIN_STEP_SECONDS:
            self._unsure, self._jumps = self._anchor is not None, self._jumps + 1

    def _read(self) -> _Reading:
        while True:
            before = self.monotonic()
            wall = self.local.now().timestamp()
            passed = self._passed()
            now = wall if self._anchor is None else passed + self._anchor[0]
            if self.monotonic() - before < _READING_SECONDS:  # else this thread was stopped in between, and not a clock
                return _Reading(wall - before, passed - before, now - before)


_clocks: weakref.WeakSet[StoreClock] = weakref.WeakSet()


def _after_fork() -> None:
    for clock in _clocks:  # another thread may have held its lock, and that thread is not here
        clock.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_after_fork)


def _agree(one: _Sample, other: _Sample) -> bool:
    return abs(one.ahead - other.ahead) <= (one.trip + other.trip) / 2 + _DRIFT_SECONDS
