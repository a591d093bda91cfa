"""``app.stats.scale``: how many slots each queue needs, and each set of requirements in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core.codec.record import Record
from headrace.core.limits.settings import Limits, limits_of
from headrace.core.matching.match import meets
from headrace.core.stats.load import Load, Loads
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import Totals
from headrace.core.stats.scale import Demand, Runs, advise, mixed_runs, most_at_once, runs_of
from headrace.core.times import Seconds, seconds
from headrace.runtime.single_flight import SingleFlight

if TYPE_CHECKING:
    from headrace.engine import Engine, WorkerRow
    from headrace.runtime.host import Host

__all__ = [
    "LoadReader",
    "QueueScale",
    "RequirementScale",
    "ScaleFigures",
    "profile_of",
    "scale",
]

_FRESH_SECONDS = 1.0
"""Seconds for which counts are used again."""
_RUNS_FRESH_SECONDS = 10.0
"""Seconds for which run times are used again: workers report them no more often."""
_RUNS_WINDOW = timedelta(hours=1)
_OLD_RUNS_WINDOW = timedelta(days=7)
"""How far back run times are read of a task that did not run in the last hour."""
_MAX_OLD_RUNS_TASKS = 20
"""Maximum tasks of which that is done at a time."""


class ScaleFigures(msgspec.Struct, Record, frozen=True, kw_only=True):
    """What is known about some jobs and the workers that may run them."""

    backlog: int
    """Jobs that wait and could begin now."""
    more: bool
    """Whether the backlog is longer than was counted."""
    running: int
    """Jobs that workers hold."""
    oldest_age: float | None
    """Seconds for which the first of the backlog has waited."""
    arrival_rate: float
    """Jobs that arrive in a second, retries included."""
    service_rate: float | None
    """Jobs that one slot does in a second; null: unknown, since none has ended in the last days."""
    slots: int
    """Slots of the live workers that may run these jobs; a slot may count for several kinds of jobs."""
    slots_needed: int
    """Slots with which 95 % of the jobs begin within the wanted time."""
    expected_wait: float | None
    """Seconds that a job of this moment would wait with the slots that are there; null: unknown, or without end."""


class RequirementScale(ScaleFigures, frozen=True, kw_only=True):
    """The jobs of a queue with one set of requirements."""

    profile: str
    """A name for this set of requirements; it is the same in every store."""
    requires: dict[str, Any]
    tasks: tuple[str, ...]
    """The tasks that have such jobs now, or had a few minutes ago."""


class QueueScale(ScaleFigures, frozen=True, kw_only=True):
    """A queue: how many slots it needs, if each of them can run all its jobs."""

    queue: str
    paused: bool
    """Nothing begins, so only what runs needs slots."""
    requirements: tuple[RequirementScale, ...]
    """The same for each set of requirements on its own."""

    def of(self, profile: str) -> QueueScale:
        """The same for one set of requirements; zeros if no job has it."""
        found = tuple(one for one in self.requirements if one.profile == profile)
        figures = found[0] if found else _NONE
        told = {name: getattr(figures, name) for name in ScaleFigures.__struct_fields__}
        return msgspec.structs.replace(self, requirements=found, **told)


_NONE = ScaleFigures(
    backlog=0,
    more=False,
    running=0,
    oldest_age=None,
    arrival_rate=0.0,
    service_rate=None,
    slots=0,
    slots_needed=0,
    expected_wait=None,
)

_sorted = msgspec.json.Encoder(order="deterministic").encode


def profile_of(requires: Mapping[str, Any]) -> str:
    """The name of a set of requirements."""
    return sha256(_sorted(requires)).hexdigest()[:12]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What the store says at one moment."""

    at: datetime
    loads: Loads
    """Without headrace's own jobs."""
    workers: Sequence[WorkerRow]
    """Those that take jobs."""
    limits: Limits
    runs: Mapping[tuple[str, str], Runs]
    """By task and queue; by task and an empty text: in any queue."""

    def runs_of(self, load: Load) -> Runs | None:
        """How long runs of such jobs take."""
        return self.runs.get((load.task, load.queue)) or self.runs.get((load.task, ""))


class LoadReader:
    """Reads what an advice is made of, once for all who ask within a second."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self._engine, self._host = engine, host
        self._flight = SingleFlight(self._refreshed)
        self._last: tuple[float, Reading] | None = None
        self._runs: tuple[float, dict[tuple[str, str], Runs]] = (-_RUNS_FRESH_SECONDS, {})
        self._old_runs: dict[str, Runs] = {}
        """Of tasks that did not run in the last hour."""

    async def read(self) -> Reading:
        """The store as it was at most a second ago."""
        return self._fresh() or await self._flight()

    def _fresh(self) -> Reading | None:
        if self._last is None or self._host.clock.monotonic() - self._last[0] >= _FRESH_SECONDS:
            return None
        return self._last[1]

    async def _refreshed(self) -> Reading:
        if (fresh := self._fresh()) is not None:
            return fresh
        engine, now = self._engine, self._host.clock.now()
        counted = await engine.records.load(now)
        loads = tuple(one for one in counted.loads if not is_own(one.task))
        rows = (row.as_heard(now, engine.rules) for row in await engine.workers.list())
        limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
        found = Reading(
            at=now,
            loads=Loads(loads=loads, since=counted.since),
            workers=[row for row in rows if row.takes],
            limits=limits,
            runs=await self._run_times(loads, now),
        )
        self._last = self._host.clock.monotonic(), found
        return found

    async def _run_times(self, loads: Iterable[Load], now: datetime) -> Mapping[tuple[str, str], Runs]:
        at, runs = self._runs
        if self._host.clock.monotonic() - at >= _RUNS_FRESH_SECONDS:
            sums: dict[tuple[str, str], Totals] = {}
            for row in await self._engine.rollups.read(now - _RUNS_WINDOW, now + timedelta(minutes=1)):
                for queue in (row.queue, ""):
                    sums.setdefault((row.task, queue), Totals()).merge(row.totals)
            runs = {name: found for name, totals in sums.items() if (found := runs_of(totals)) is not None}
            unknown = {load.task for load in loads if load.queued or load.held} - {task for task, _ in runs}
            for task in sorted(unknown - self._old_runs.keys())[:_MAX_OLD_RUNS_TASKS]:
                await self._read_old(task, now)
            self._old_runs = {task: self._old_runs[task] for task in unknown & self._old_runs.keys()}
            runs |= {(task, ""): found for task, found in self._old_runs.items()}
            self._runs = self._host.clock.monotonic(), runs
        return runs

    async def _read_old(self, task: str, now: datetime) -> None:
        totals = Totals()
        for row in await self._engine.rollups.read(now - _OLD_RUNS_WINDOW, now, task):
            totals.merge(row.totals)
        if (found := runs_of(totals)) is not None:
            self._old_runs[task] = found


async def scale(reader: LoadReader, wait: Seconds, queue: str | None, queues: Iterable[str] = ()) -> list[QueueScale]:
    """The advice for each of these queues, and each that has jobs, settings or workers; or for one ``queue`` alone."""
    wanted = seconds(wait, "wait")
    reading = await reader.read()
    names = [queue] if queue is not None else sorted({*queues, *_known_queues(reading)})
    return [_queue_scale(reading, name, wanted) for name in names]


def _known_queues(reading: Reading) -> Iterator[str]:
    yield from (load.queue for load in reading.loads.loads)
    yield from (name for name in reading.limits.queues if not is_own(name))
    for row in reading.workers:
        if not row.info.own:
            yield from row.info.queues or ()


def _queue_scale(reading: Reading, queue: str, wait: float) -> QueueScale:
    loads = [load for load in reading.loads.loads if load.queue == queue]
    kinds: dict[str, list[Load]] = {}
    for load in loads:
        kinds.setdefault(profile_of(load.requires), []).append(load)
    parts = [
        RequirementScale(
            profile=profile,
            requires=alike[0].requires,
            tasks=tuple(sorted({load.task for load in alike})),
            **_told(reading, queue, alike, wait),
        )
        for profile, alike in kinds.items()
    ]
    return QueueScale(
        queue=queue,
        paused=reading.limits.queue(queue).paused,
        requirements=tuple(sorted(parts, key=lambda part: _sorted(part.requires))),
        **_told(reading, queue, loads, wait),
    )


def _told(reading: Reading, queue: str, loads: Sequence[Load], wait: float) -> dict[str, Any]:
    """The figures of jobs that the same workers run, by their names."""
    demand, limits = _demand(reading, loads), reading.limits
    slots = sum(row.info.concurrency for row in reading.workers if _may_run(row, queue, loads, limits))
    takes = None if demand.runs is None else demand.runs.seconds
    most = most_at_once(limits, queue, {load.task for load in loads}, takes)
    stopped = [load for load in loads if limits.paused(queue, load.task)]
    paused = limits.queue(queue).paused or (bool(loads) and len(stopped) == len(loads))
    advice = advise(demand, slots, wait, most=most, paused=paused)
    if stopped and not paused:
        begins = advise(_demand(reading, loads, stopped), slots, wait, most=most)
        advice = msgspec.structs.replace(advice, slots_needed=begins.slots_needed, expected_wait=begins.expected_wait)
    return {
        "backlog": demand.queued,
        "more": any(load.more for load in loads),
        "running": demand.held,
        "oldest_age": demand.age if demand.queued else None,
        "slots": slots,
        **msgspec.structs.asdict(advice),
    }


def _demand(reading: Reading, loads: Sequence[Load], stopped: Sequence[Load] = ()) -> Demand:
    """The demand of all these jobs together; ``stopped``: those of paused tasks, of which only what runs is one."""
    begin = [load for load in loads if load not in stopped]
    ended: dict[int, int] = {}
    for load in begin:
        for minute, jobs in load.ended.items():
            ended[minute] = ended.get(minute, 0) + jobs
    oldest = min((load.oldest for load in begin if load.oldest is not None), default=reading.at)
    weights = [(load.queued + load.held + sum(load.ended.values()), reading.runs_of(load)) for load in begin]
    weights += [(load.held, reading.runs_of(load)) for load in stopped]
    return Demand(
        queued=sum(load.queued for load in begin),
        held=sum(load.held for load in loads),
        age=max(0.0, (reading.at - oldest).total_seconds()),
        ended=ended,
        seconds=max(1.0, (reading.at - reading.loads.since).total_seconds()),
        runs=mixed_runs(weights),
    )


def _may_run(row: WorkerRow, queue: str, loads: Sequence[Load], limits: Limits) -> bool:
    """Whether a worker may run any of these jobs; where there are none, whether it serves the queue."""
    info = row.info
    if info.own or (info.queues is not None and queue not in info.queues):
        return False
    if info.customers is not None and not limits.queue(queue).by_customer:
        return False
    if not loads:
        return True
    return any(info.runs(load.task, load.requires) and meets(load.requires, info.offers) for load in loads)
