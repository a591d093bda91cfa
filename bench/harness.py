"""Runs the plan: every measurement in processes of its own, on a fresh store, the sides taking turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.children import BrokenDown, ask, crew
from bench.draining import SETTLE, drain, finish
from bench.figures import Figures, Key
from bench.plan import LABELS, STATES, EngineName, Measure, Plan, SideName
from bench.progress import Progress
from bench.states import drain_in
from bench.stores import Databases, Stores

__all__ = ["Step", "measure", "steps"]


@dataclass(frozen=True)
class Step:
    """One measurement of one side."""

    what: Measure
    side: SideName
    jobs: int
    threads: int = 1
    processes: int = 1
    sync: bool = False
    """Whether headrace submits without an event loop."""

    def __str__(self) -> str:
        threads = f" with {self.threads} threads" if self.threads > 1 else ""
        processes = f" in {self.processes} processes" if self.processes > 1 else ""
        sync = " by submit_sync" if self.sync else ""
        return f"{self.what}: {LABELS[self.side]}{threads}{processes}{sync}"

    @property
    def key(self) -> Key:
        """The row it belongs to; of a latency measurement, the first."""
        if self.what == "latency":
            return "p50"
        if self.sync:
            return "sync"
        return "drain4" if self.threads > 1 else "drain2" if self.processes > 1 else self.what


def measure(plan: Plan, stores: Stores) -> Figures:
    """Every figure of the plan."""
    figures, todo = Figures(), list(steps(plan))
    progress = Progress(len(todo))
    for step in todo:
        progress.step(str(step))
        try:
            with stores.fresh() as store:
                _take(step, plan, stores, store, figures)
        except BrokenDown as error:  # the others' figures are good all the same
            figures.broken.append(f"{step}: {error}")
    progress.done()
    return figures


def steps(plan: Plan) -> Iterator[Step]:
    """All measurements, interleaved: what disturbs the machine for a while should disturb all sides alike."""
    for turn in range(plan.repeat):
        shift = turn % len(plan.sides)
        sides = (*plan.sides[shift:], *plan.sides[:shift])  # nobody always goes first
        for what in plan.measures:
            for side in sides:
                jobs = plan.count(what, side)
                if jobs > 0:
                    yield from _crews(plan, what, side, jobs)


def _crews(plan: Plan, what: Measure, side: SideName, jobs: int) -> Iterator[Step]:
    if what != "drain":
        yield Step(what, side, jobs)
        if what == "one" and plan.engine == "sqlite" and side == "headrace":
            yield Step(what, side, jobs, sync=True)
    elif side.startswith("huey"):
        yield from (Step(what, side, jobs, threads=threads) for threads in plan.threads)
    else:
        yield from (Step(what, side, jobs, processes=processes) for processes in plan.processes)


def _take(step: Step, plan: Plan, stores: Stores, store: str, figures: Figures) -> None:
    engine, side = plan.engine, step.side
    if step.what in STATES:
        assert isinstance(stores, Databases)
        figures.add(step.key, side, drain_in(step.what, stores, side, store, step.jobs))
    elif step.what == "latency":
        waits = _waits(engine, side, store, step.jobs, plan.per_second)
        figures.add("p50", side, waits[len(waits) // 2])
        figures.add("p99", side, waits[int(len(waits) * 0.99)])
    elif step.what == "drain":
        ask(engine, side, store, "submit", "fill", step.jobs, 0)
        rate, rss = drain(engine, side, store, step.jobs, step.threads, step.processes)
        figures.add(step.key, side, rate)
        if step.key == "drain":
            figures.add("rss", side, rss)
    else:
        how = "sync" if step.sync else step.what
        rate = step.jobs / float(ask(engine, side, store, "submit", how, step.jobs, 0))
        figures.add(step.key, side, rate)
        if step.what == "one" and engine == "sqlite" and side != "headrace":
            figures.add("sync", side, rate)  # there is but one way to submit to them, on the caller's thread


def _waits(engine: EngineName, side: SideName, store: str, jobs: int, per_second: float) -> list[float]:
    """Milliseconds from submit to the start of the handler under a light load, sorted; two processes, one clock."""
    ask(engine, side, store, "submit", "fill", 0, 0)  # creates the store
    with crew(engine, side, store) as workers:
        workers.start()
        time.sleep(SETTLE)
        ask(engine, side, store, "submit", "paced", jobs, per_second)
        finish(workers, jobs)
        return sorted(wait * 1000 for wait in workers.stop())
