"""Runs the plan: every measurement in processes of its own, on a fresh file, the sides taking turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.children import BrokenDown, ask, child
from bench.figures import Figures
from bench.plan import LABELS, Measure, Plan, SideName
from bench.progress import Progress

__all__ = ["Step", "drain", "measure", "steps"]

SETTLE = 1.0
"""Seconds a worker is given before a light load begins."""


@dataclass(frozen=True)
class Step:
    """One measurement of one side."""

    what: Measure
    side: SideName
    jobs: int
    threads: int = 1

    def __str__(self) -> str:
        threads = f" with {self.threads} threads" if self.threads > 1 else ""
        return f"{self.what}: {LABELS[self.side]}{threads}"


def measure(plan: Plan, home: Path) -> Figures:
    """Every figure of the plan."""
    figures, todo = Figures(), list(steps(plan))
    progress = Progress(len(todo))
    for step in todo:
        progress.step(str(step))
        with TemporaryDirectory(dir=home) as fresh:
            _take(step, plan, Path(fresh) / "jobs.db", figures)
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
                    crews = plan.threads if what == "drain" and side.startswith("huey") else (1,)
                    yield from (Step(what, side, jobs, threads) for threads in crews)


def _take(step: Step, plan: Plan, path: Path, figures: Figures) -> None:
    side = step.side
    if step.what == "latency":
        waits = _waits(side, path, step.jobs, plan.per_second)
        figures.add("p50", side, waits[len(waits) // 2])
        figures.add("p99", side, waits[int(len(waits) * 0.99)])
    elif step.what == "drain":
        ask(side, path, "submit", "fill", step.jobs, 0)
        rate, rss = drain(side, path, step.jobs, step.threads)
        figures.add("drain" if step.threads == 1 else "drain4", side, rate)
        if step.threads == 1:
            figures.add("rss", side, rss)
    else:
        figures.add(step.what, side, step.jobs / float(ask(side, path, "submit", step.what, step.jobs, 0)))


def drain(side: SideName, path: Path, jobs: int, threads: int = 1, left: int = 0) -> tuple[float, float]:
    """Have a worker do all jobs that wait in a store; jobs a second, and its memory afterwards in MB.

    ``left``: how many jobs must remain, because they are not the worker's to take.
    """
    with child("bench.worker", side, path, jobs, threads) as worker:
        worker.hear()
        worker.tell()
        seconds = float(worker.hear()["seconds"])
        rss = worker.rss()
        worker.tell()
    remaining = int(ask(side, path, "remaining"))
    if remaining != left:
        raise BrokenDown(f"{LABELS[side]}: {remaining} jobs are left after the drain, not {left}")
    return jobs / seconds, rss


def _waits(side: SideName, path: Path, jobs: int, per_second: float) -> list[float]:
    """Milliseconds from submit to the start of the handler under a light load, sorted; two processes, one clock."""
    ask(side, path, "submit", "fill", 0, 0)  # creates the store
    with child("bench.worker", side, path, jobs, 1) as worker:
        worker.hear()
        worker.tell()
        time.sleep(SETTLE)
        ask(side, path, "submit", "paced", jobs, per_second)
        waits = sorted(float(wait) * 1000 for wait in worker.hear()["waits"])
        worker.tell()
    return waits
