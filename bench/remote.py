"""Workers far away.

The remote engine, through a hub, beside the same worker on the database. Hub and worker are a process each. All loops
are uvloop's, as of the commands.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import psutil  # type: ignore[import-untyped]

from bench.children import ask, crew
from bench.draining import SETTLE, finish
from bench.hub import hub_process
from bench.plan import EngineName
from bench.progress import Progress
from bench.sides.headrace import UVLOOP
from bench.stores import Stores

__all__ = ["RemoteFigures", "Way", "remote", "remote_lines"]

LEAST = 0.4
"""What was promised: the drain through a hub, of that on the database."""
PER_SECOND = 20
FLAGS = ("--no-webhooks",)
"""Of the hub."""


@dataclass
class Way:
    """Samples of one way to the store."""

    drain: list[float] = field(default_factory=list)
    """Jobs a second of one worker."""
    worker_us: list[float] = field(default_factory=list)
    """Microseconds of the worker's processor time for each of these jobs."""
    hub_us: list[float] = field(default_factory=list)
    """The same of the hub."""
    bulk: list[float] = field(default_factory=list)
    """Jobs a second, submitted 1,000 at a time."""
    p50_ms: list[float] = field(default_factory=list)
    """From submit to start, under a light load."""
    p99_ms: list[float] = field(default_factory=list)


@dataclass
class RemoteFigures:
    """Samples of each."""

    direct: Way = field(default_factory=Way)
    far: Way = field(default_factory=Way)
    """By the remote engine."""


def remote(engine: EngineName, stores: Stores, *, quick: bool, repeat: int) -> RemoteFigures:
    """Everything, as often as asked for, by turns."""
    found, size = RemoteFigures(), 0.2 if quick else 1.0
    progress = Progress(6 * repeat)
    os.environ[UVLOOP] = "1"
    try:
        for _ in range(repeat):
            for name, way in (("on the database", found.direct), ("through a hub", found.far)):
                progress.step(f"drain {name}")
                _drain(engine, stores, way, int(20_000 * size), far=way is found.far)
                progress.step(f"bulk submit {name}")
                _bulk(engine, stores, way, int(50_000 * size), far=way is found.far)
                progress.step(f"latency {name}")
                _latency(engine, stores, way, int(200 * size), far=way is found.far)
    finally:
        del os.environ[UVLOOP]
    progress.done()
    return found


# -- the remote engine beside the database


@contextmanager
def _place(stores: Stores, far: bool) -> Iterator[tuple[str, str, psutil.Process | None]]:
    """A new store, how it is reached, and the hub that is on the way."""
    with (
        stores.fresh() as store,
        hub_process(store, *FLAGS) if far else nullcontext((store, None)) as (at, hub),
    ):
        yield store, f"hub+{at}" if far else at, hub


def _drain(engine: EngineName, stores: Stores, way: Way, jobs: int, *, far: bool) -> None:
    with _place(stores, far) as (store, url, hub):
        ask(engine, "headrace", store, "submit", "fill", jobs, 0)
        with crew(engine, "headrace", url) as workers:
            workers.start()
            [worker] = workers.children
            before = worker.processor_time(), _used(hub)
            way.drain.append(finish(workers, jobs))
            way.worker_us.append((worker.processor_time() - before[0]) / jobs * 1e6)
            way.hub_us.append((_used(hub) - before[1]) / jobs * 1e6)
            workers.stop()
        assert ask(engine, "headrace", url, "remaining") == 0


def _used(hub: psutil.Process | None) -> float:
    return 0.0 if hub is None else float(hub.cpu_times().user + hub.cpu_times().system)


def _bulk(engine: EngineName, stores: Stores, way: Way, jobs: int, *, far: bool) -> None:
    with _place(stores, far) as (_, url, _hub):
        way.bulk.append(jobs / float(ask(engine, "headrace", url, "submit", "bulk", jobs, 0)))


def _latency(engine: EngineName, stores: Stores, way: Way, jobs: int, *, far: bool) -> None:
    """Both the submitter and the worker go this way."""
    with _place(stores, far) as (_, url, _hub):
        ask(engine, "headrace", url, "submit", "fill", 0, 0)  # creates the store
        with crew(engine, "headrace", url) as workers:
            workers.start()
            time.sleep(SETTLE)
            ask(engine, "headrace", url, "submit", "paced", jobs, PER_SECOND)
            finish(workers, jobs)
            waits = sorted(wait * 1000 for wait in workers.stop())
    way.p50_ms.append(waits[len(waits) // 2])
    way.p99_ms.append(waits[int(len(waits) * 0.99)])


# -- what is said


def remote_lines(found: RemoteFigures) -> Iterator[str]:
    """The figures against what was promised; of several runs the best, as everywhere."""
    direct, far = found.direct, found.far
    yield f"settings: headrace hub {' '.join(FLAGS)}, without keys; workers as they come, 10 jobs at once; uvloop"
    ratio = max(far.drain) / max(direct.drain)
    yield "drain of one worker with its default concurrency, 20,000 jobs that do nothing, jobs a second"
    yield _line("on the database", f"{max(direct.drain):,.0f}", f"{min(direct.worker_us):.0f} µs a job")
    spent = f"{min(far.worker_us):.0f} µs a job, and {min(far.hub_us):.0f} of the hub"
    kept = f"{ratio:.2f}× (≥ {LEAST:.2f}); {spent}"
    yield _line("through a hub", f"{max(far.drain):,.0f}", kept, ratio >= LEAST)
    yield "bulk submits, 1,000 jobs a call, jobs a second"
    yield _line("on the database", f"{max(direct.bulk):,.0f}")
    yield _line("through a hub", f"{max(far.bulk):,.0f}", f"{max(far.bulk) / max(direct.bulk):.2f}×")
    yield f"from submit to start, {PER_SECOND} jobs a second, both through the hub: p50 (p99)"
    yield _line("on the database", f"{min(direct.p50_ms):.1f} ms", f"({min(direct.p99_ms):.1f})")
    yield _line("through a hub", f"{min(far.p50_ms):.1f} ms", f"({min(far.p99_ms):.1f})")


def _line(what: str, figure: str, more: str = "", good: bool | None = None) -> str:
    mark = " " if good is None else "✓" if good else "✗"
    return f"  {mark} {what:<24} {figure:>10}   {more}".rstrip()
