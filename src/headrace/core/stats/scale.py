"""Scaling advice: how many slots a queue needs so that its jobs begin within a wanted time.

It is the greater of two numbers. One is for the jobs to come: as many slots as ``λ · S`` is busy on average, and so many
more that only few of the jobs wait too long (the formula of Erlang for M/M/c, corrected for the variance of run times as
for M/G/c). ``λ`` is the rate of arrivals, ``S`` how long a run takes. The other is for the jobs that are there: with
``c`` slots, those that wait and those that run are through within ``t`` seconds if ``c · (1 + t / S)`` is as many. If a
run takes much longer than the wanted time, that is a slot for each of them; if it is much shorter, a slot does many.

Down it goes slowly, up at once: the rate is the highest of the last minutes, so nothing is remembered between calls and
all who ask at one moment are advised alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from headrace.core.stats.histogram import BOUNDS, Histogram

__all__ = ["Advice", "Demand", "Runs", "advise", "arrival_rate", "runs_of"]

LATE_SHARE = 0.04
"""The share of the jobs that may wait longer, of the 5 % that users are promised: the rest is for wrong estimates."""
RATE_MINUTES = 10
"""Minutes over which a rate is measured: fewer are chance, more are the past."""
_RISE_MINUTES = (1, 3)
"""Minutes that are enough for a rise that cannot be chance."""
_CERTAIN = 2.0
"""Standard deviations beyond which a number of jobs is no chance."""
_MAX_EXACT_LOAD = 10_000.0
"""Up to this load slots are counted one by one; beyond it the rule of the square root says the same."""
_MIN_RUN_SECONDS = 0.001
"""A shorter run has as much overhead around it."""
_MIN_WAIT_SHARE = 0.25
"""The share of the wanted time in which jobs that are late already should begin."""
_MAX_VARIANCE = 10.0


class Runs(msgspec.Struct, frozen=True):
    """How long runs take."""

    seconds: float
    """The mean."""
    variance: float = 1.0
    """Squared coefficient of variation: 0 if all take the same time, 1 if they are exponentially distributed."""
    per_job: float = 1.0
    """Runs of a job, with its retries."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about jobs that the same workers run."""

    queued: int = 0
    held: int = 0
    age: float = 0.0
    """Seconds for which the first of the queued jobs has waited."""
    ended: Mapping[int, int] = {}
    """Jobs that ended, by the number of whole minutes that this is ago."""
    seconds: float
    """Seconds over which ended jobs were counted."""
    runs: Runs | None = None
    """None: none has ended yet."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """How many slots are needed, and what that was computed from."""

    arrival_rate: float
    """Runs that become due in a second."""
    service_rate: float | None
    """Runs that one slot does in a second; None: unknown."""
    slots_needed: int
    expected_wait: float | None
    """Seconds that a job of this moment would wait with the slots that are there; None: without end, or unknown."""


def runs_of(ran: Histogram, jobs: int) -> Runs | None:
    """Return how long these runs of so many ended jobs took; None if there were none."""
    count = ran.count
    if not count:
        return None
    mean = max(ran.seconds / count, _MIN_RUN_SECONDS)
    squares = sum(number * _middle(place) ** 2 for place, number in ran.counts.items()) / count
    variance = min(max(squares / mean**2 - 1, 0.0), _MAX_VARIANCE)
    return Runs(mean, variance, max(1.0, count / jobs) if jobs else 1.0)


def _middle(place: int) -> float:
    if place >= len(BOUNDS):
        return BOUNDS[-1]
    return BOUNDS[place] / 2 if place == 0 else math.sqrt(BOUNDS[place - 1] * BOUNDS[place])


def arrival_rate(demand: Demand) -> float:
    """Return how many jobs arrive in a second.

    In a line, those that wait are those that came while the first of them has waited; before that, as many came as
    ended. A rise counts as soon as it cannot be chance. The rate is never less than what ended in any ``RATE_MINUTES``
    of the counted time: so it falls slowly.
    """
    window = min(RATE_MINUTES * 60.0, max(demand.seconds, 1.0))
    alone = min(demand.age, window)
    waiting = demand.queued * alone / demand.age if demand.age > window else demand.queued
    rates = [(waiting + _ended(demand, 0, RATE_MINUTES) * (1 - alone / window)) / window]
    for minutes in _RISE_MINUTES:
        jobs = _ended(demand, 0, minutes)
        rates.append((jobs - _CERTAIN * math.sqrt(jobs)) / min(minutes * 60.0, window))
    last = math.ceil(demand.seconds / 60.0) - RATE_MINUTES
    rates += (_ended(demand, first, RATE_MINUTES) / window for first in range(1, last + 1))
    return max(rates)


def _ended(demand: Demand, first: int, minutes: int) -> int:
    return sum(demand.ended.get(minute, 0) for minute in range(first, first + minutes))


def advise(demand: Demand, slots: int, wait: float, *, most: int | None = None, paused: bool = False) -> Advice:
    """Return how many slots are needed so that jobs begin within ``wait`` seconds.

    ``slots``: those that are there. ``most``: how many jobs may run at once by the limits; more slots would be idle.
    ``paused``: only what runs is to be finished.
    """
    rate = arrival_rate(demand)
    # Until the first run has ended it counts as long as the wanted time: half a slot for each job.
    runs = demand.runs or Runs(max(wait, _MIN_RUN_SECONDS))
    rate *= runs.per_job
    left = max(wait - demand.age, wait * _MIN_WAIT_SHARE)
    present = (demand.queued + demand.held) * runs.seconds / (runs.seconds + left)
    needed = max(_staffed(rate * runs.seconds, runs, wait), math.ceil(present))
    if paused:
        needed = demand.held
    elif most is not None:
        needed = min(needed, most)
    known = demand.runs is not None
    return Advice(
        arrival_rate=rate,
        service_rate=1 / runs.seconds if known else None,
        slots_needed=needed,
        expected_wait=None if paused else _expected(demand, runs if known else None, rate, slots),
    )


def _staffed(load: float, runs: Runs, wait: float) -> int:
    """Return the fewest slots with which at most ``LATE_SHARE`` of the runs wait longer, where ``load`` are busy."""
    if load <= 0:
        return 0
    if load > _MAX_EXACT_LOAD:
        return math.ceil(load + 2 * math.sqrt(load))
    slots, blocked = 0, 1.0
    while True:
        slots += 1
        blocked = load * blocked / (slots + load * blocked)  # the formula of Erlang for loss, one slot more
        if slots > load and _late(slots, load, blocked, runs, wait) <= LATE_SHARE:
            return slots


def _delayed(slots: int, load: float, blocked: float) -> float:
    """Return the share of the runs that wait at all."""
    return slots * blocked / (slots - load * (1 - blocked))


def _late(slots: int, load: float, blocked: float, runs: Runs, wait: float) -> float:
    """Return the share of the runs that wait for longer."""
    pace = (slots - load) / runs.seconds * 2 / (1 + runs.variance)
    return _delayed(slots, load, blocked) * math.exp(-pace * wait)


def _expected(demand: Demand, runs: Runs | None, rate: float, slots: int) -> float | None:
    if slots <= 0:
        return None
    ahead = demand.queued + 1 - max(0, slots - demand.held)
    if runs is None:
        return 0.0 if ahead <= 0 else None
    drained = max(0, ahead) * runs.seconds / slots
    return max(drained, _mean_wait(rate * runs.seconds, runs, slots))


def _mean_wait(load: float, runs: Runs, slots: int) -> float:
    """Return how long runs wait on average; 0 where slots are too few for any average: then the jobs there say more."""
    if load >= slots or load > _MAX_EXACT_LOAD:
        return 0.0
    blocked = 1.0
    for number in range(1, slots + 1):
        blocked = load * blocked / (number + load * blocked)
    return _delayed(slots, load, blocked) * runs.seconds / (slots - load) * (1 + runs.variance) / 2
