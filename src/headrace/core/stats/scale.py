"""Scaling advice: how many slots a queue needs so that its jobs begin within a wanted time.

It is the greater of two numbers. One is for the jobs to come: ``λ · S`` slots are busy on average, and so many more are
needed that few jobs wait too long (Erlang's formula for M/M/c, corrected for the variance of run times as for M/G/c).
``λ`` is the rate of arrivals, ``S`` how long a run takes. The other is for the jobs that are there: in ``t`` seconds
``c`` slots begin ``c · (1 + t / S)`` jobs, those that run already included. If a run takes much longer than the wanted
time, that is a slot for each job; if it is much shorter, one slot serves many.

It rises at once and falls slowly: the rate is the highest of the last minutes. So nothing is remembered between calls,
and at one moment every process gives the same advice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from headrace.core.limits.settings import Limits, QueueRule, TaskRule
from headrace.core.stats.histogram import BOUNDS
from headrace.core.stats.load import LOAD_MINUTES
from headrace.core.stats.rollup import Totals

__all__ = [
    "LATE_SHARE",
    "RATE_MINUTES",
    "Advice",
    "Demand",
    "Runs",
    "advise",
    "arrival_rate",
    "mixed_runs",
    "most_at_once",
    "runs_of",
]

LATE_SHARE = 0.04
"""The share of the jobs that may wait longer, of the 5 % that users are promised: the rest is for wrong estimates."""
RATE_MINUTES = 10
"""Minutes over which a rate is measured: fewer are chance, more are the past."""
_RISE_MINUTES = (1, 3)
"""Minutes that are enough for a rise that cannot be chance."""
_CERTAIN_DEVIATIONS = 2.0
"""Standard deviations beyond which a number of jobs is no chance."""
_AHEAD_SECONDS = 300.0
"""Seconds for which an advice should be good: until the next one, and until slots that it asks for are there."""
_MAX_EXACT_LOAD = 10_000.0
"""Up to this load slots are counted one by one; beyond it the rule of the square root says the same."""
_MIN_RUN_SECONDS = 0.001
"""A shorter run has as much overhead around it."""
_MIN_WAIT_SHARE = 0.25
"""The share of the wanted time in which jobs that are late already should begin."""
_MAX_VARIANCE, _MAX_PER_JOB = 10.0, 10.0
"""More than this is a rare event in a short time, and not what to plan for."""


class Runs(msgspec.Struct, frozen=True):
    """How long runs take."""

    seconds: float
    """The mean."""
    variance: float = 1.0
    """Squared coefficient of variation: 0 if all take the same time, 1 if they are exponentially distributed."""
    per_job: float = 1.0
    """Runs of a job, its retries included."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about jobs that the same workers run."""

    queued: int = 0
    held: int = 0
    age: float = 0.0
    """Seconds for which the first of the queued jobs has waited."""
    ended: Mapping[int, int] = {}
    """Jobs that ended, by how many whole minutes ago."""
    seconds: float = LOAD_MINUTES * 60.0
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
    """Seconds that a job of this moment would wait with the slots that are there; None: unknown, or without end."""


def runs_of(totals: Totals) -> Runs | None:
    """Return how long these runs took; None if none was measured."""
    ran = totals.ran
    count = ran.count
    if not count:
        return None
    mean = max(ran.seconds / count, _MIN_RUN_SECONDS)
    squares = sum(number * _middle(place) ** 2 for place, number in ran.counts.items()) / count
    jobs = totals.completed + totals.failed + totals.timed_out + totals.lost - totals.retried
    return Runs(
        mean, min(max(squares / mean**2 - 1, 0.0), _MAX_VARIANCE), min(max(count / max(jobs, 1), 1.0), _MAX_PER_JOB)
    )


def _middle(place: int) -> float:
    """Return a duration that stands for those of a bucket."""
    if place >= len(BOUNDS):
        return BOUNDS[-1]
    return BOUNDS[0] / 2 if place == 0 else math.sqrt(BOUNDS[place - 1] * BOUNDS[place])


def mixed_runs(parts: Iterable[tuple[float, Runs | None]]) -> Runs | None:
    """Return how long the runs of several kinds of jobs take, each with its weight; None: that of none is known."""
    known = [(weight, runs) for weight, runs in parts if runs is not None and weight > 0]
    total = sum(weight for weight, _ in known)
    if not known:
        return None
    mean = sum(weight * runs.seconds for weight, runs in known) / total
    squares = sum(weight * runs.seconds**2 * (1 + runs.variance) for weight, runs in known) / total
    return Runs(mean, squares / mean**2 - 1, sum(weight * runs.per_job for weight, runs in known) / total)


def arrival_rate(demand: Demand) -> float:
    """Return how many jobs arrive in a second.

    In a queue, those that wait are those that came while the first of them has waited; before that, as many came as
    ended.
    """
    window = _window(demand)
    alone = min(demand.age, window)
    waiting = demand.queued * alone / demand.age if demand.age > window else demand.queued
    return (waiting + _ended(demand, 0, RATE_MINUTES) * (1 - alone / window)) / window


def _planned_rate(demand: Demand, runs: Runs) -> float:
    """Return at how many jobs a second to plan for.

    A rise counts as soon as it cannot be chance, and a fall when it has lasted: the rate is the highest at which jobs
    ended in any ``RATE_MINUTES`` of the counted time. Jobs that have only just come say nothing about the next ones,
    and a single job never does. Where runs take longer than what was counted, those that ended came long ago: then
    there are at most twice as many to come as are there.
    """
    window = _window(demand)
    spans = range(max(0, math.ceil(demand.seconds / 60.0) - RATE_MINUTES) + 1)
    rates = [_ended(demand, first, RATE_MINUTES) / window for first in spans]
    for minutes in _RISE_MINUTES:
        jobs = _ended(demand, 0, minutes)
        rates.append((jobs - _CERTAIN_DEVIATIONS * math.sqrt(jobs)) / min(minutes * 60.0, window))
    if demand.age > 0:
        rates.append(arrival_rate(demand) * min(demand.age / window, 1.0))
    rate = max(0.0, max(rates) - 1 / window)
    return min(rate, 2 * (demand.queued + demand.held) / runs.seconds) if runs.seconds > window else rate


def _window(demand: Demand) -> float:
    return min(RATE_MINUTES * 60.0, max(demand.seconds, 1.0))


def _ended(demand: Demand, first: int, minutes: int) -> int:
    return sum(demand.ended.get(minute, 0) for minute in range(first, first + minutes))


def advise(demand: Demand, slots: int, wait: float, *, most: int | None = None, paused: bool = False) -> Advice:
    """Return how many slots are needed so that jobs begin within ``wait`` seconds.

    ``slots``: those that are there. ``most``: how many jobs may run at once by the limits; more slots would be idle.
    ``paused``: nothing begins, and only what runs needs its slots.
    """
    known = demand.runs
    # Until the first run has ended, one counts as long as the wanted time: a slot serves two of the jobs.
    runs = Runs(max(wait, _MIN_RUN_SECONDS)) if known is None else known
    left = wait if known is None else max(wait - demand.age, wait * _MIN_WAIT_SHARE)
    rate, present = arrival_rate(demand) * runs.per_job, demand.queued + demand.held
    needed = max(
        math.ceil(present * runs.seconds / (runs.seconds + left)),
        _planned(present, _planned_rate(demand, runs) * runs.per_job, runs, wait),
        int(bool(demand.ended)),
    )
    if paused:
        needed = demand.held
    return Advice(
        arrival_rate=rate,
        service_rate=None if known is None else 1 / known.seconds,
        slots_needed=needed if most is None else min(needed, most),
        expected_wait=None if paused else _expected(demand, rate, slots if most is None else min(slots, most)),
    )


def _planned(present: int, rate: float, runs: Runs, wait: float) -> int:
    """Return the slots for the jobs of the next ``_AHEAD_SECONDS``: those of now that will still be there, which are
    known, and those that come, of which only the average is."""
    staying = math.exp(-_AHEAD_SECONDS / runs.seconds)
    return round(present * staying) + _staffed(rate * runs.seconds * (1 - staying), runs, wait)


def _staffed(load: float, runs: Runs, wait: float) -> int:
    """Return the fewest slots with which at most ``LATE_SHARE`` of the runs wait longer, where ``load`` are busy."""
    if load <= 0:
        return 0
    if load > _MAX_EXACT_LOAD:
        return math.ceil(load + 2 * math.sqrt(load))
    slots, lost = 0, 1.0
    while True:
        slots += 1
        lost = load * lost / (slots + load * lost)
        if slots > load:
            pace = (slots - load) / runs.seconds * 2 / (1 + runs.variance)
            if _delayed(slots, load, lost) * math.exp(-pace * wait) <= LATE_SHARE:
                return slots


def _delayed(slots: int, load: float, lost: float) -> float:
    """Return the share of the runs that wait at all; ``lost``: that which so many slots would lose if none waited."""
    return slots * lost / (slots - load * (1 - lost))


def _expected(demand: Demand, rate: float, slots: int) -> float | None:
    runs, ahead = demand.runs, demand.queued + 1 - max(0, slots - demand.held)
    if slots <= 0:
        return None
    if runs is None:
        return 0.0 if ahead <= 0 else None
    return max(max(0, ahead) * runs.seconds / slots, _mean_wait(rate * runs.seconds, runs, slots))


def _mean_wait(load: float, runs: Runs, slots: int) -> float:
    """Return how long runs wait on average; 0 where slots are plenty, or too few for an average: then the jobs ahead
    say more."""
    if load >= slots or load > _MAX_EXACT_LOAD or slots > load + 10 * math.sqrt(load) + 10:
        return 0.0
    lost = 1.0
    for number in range(1, slots + 1):
        lost = load * lost / (number + load * lost)
    return _delayed(slots, load, lost) * runs.seconds / (slots - load) * (1 + runs.variance) / 2


def most_at_once(limits: Limits, queue: str, tasks: Iterable[str], seconds: float | None) -> int | None:
    """Return how many jobs of these tasks in this queue may run at once; None: any number.

    ``seconds``: how long a run takes; it says how many that a rate lets begin are still running. Limits for each
    concurrency key are not counted: nothing says how many keys there are.
    """
    of_tasks = [_tightest(limits.task(task), limits, seconds) for task in tasks]
    bounds = [_tightest(limits.queue(queue), limits, seconds)]
    if of_tasks and None not in of_tasks:
        bounds.append(sum(bound for bound in of_tasks if bound is not None))
    return min((bound for bound in bounds if bound is not None), default=None)


def _tightest(rule: QueueRule | TaskRule, limits: Limits, seconds: float | None) -> int | None:
    bounds = [] if rule.max_concurrency is None else [rule.max_concurrency]
    if seconds is not None:
        rates = (limits.rates[name] for name in rule.rates if name in limits.rates)
        bounds += (rate.limit * (math.floor(seconds / rate.per) + 1) for rate in rates if not rate.keyed)
    return min(bounds, default=None)
