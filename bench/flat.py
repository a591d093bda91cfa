"""Whether headrace stays as fast when its store is full of what the worker need not touch, or finely divided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from bench.children import ask
from bench.draining import drain
from bench.plan import EngineName, Plan
from bench.progress import Progress
from bench.sides import How
from bench.stores import Stores

__all__ = ["Case", "cases", "flat", "flat_lines"]

LINES = 1000


@dataclass(frozen=True)
class Case:
    """What is in the store before the jobs that are drained, and how those lie."""

    name: str
    done: int = 0
    """Jobs that ended before."""
    left: int = 0
    """Jobs ahead that the worker may not take."""
    ahead: How = "fill-other"
    jobs: How = "fill"
    bound: float = 0.9
    """How much of the rate on an empty store was promised."""


def cases(plan: Plan) -> list[Case]:
    """The first is what the others are compared with."""
    return [
        Case("empty", bound=1.0),
        Case(f"{plan.flat_history:,} finished jobs", done=plan.flat_history),
        Case(f"{plan.flat_ahead:,} jobs of another task ahead", left=plan.flat_ahead),
        Case(f"{plan.flat_ahead:,} jobs ahead it does not meet", left=plan.flat_ahead, ahead="fill-required"),
        Case(f"the jobs in {LINES:,} lines", jobs="fill-lines", bound=0.5),
    ]


def flat(plan: Plan, stores: Stores) -> dict[Case, list[float]]:
    """Drain rates of equally many jobs, by the state of the store."""
    engine, jobs = plan.engine, plan.drain["headrace"]
    rates: dict[Case, list[float]] = {case: [] for case in cases(plan)}
    progress = Progress(len(rates) * (plan.repeat + 1))
    with ExitStack() as stack:
        made = {}
        for case in rates:
            progress.step(f"filling: {case.name}")
            made[case] = store = stack.enter_context(stores.fresh())
            _fill(engine, store, case, jobs)
            stores.settle(store)
        for _ in range(plan.repeat):
            for case, found in rates.items():
                progress.step(f"drain: {case.name}")
                with stores.copy(made[case]) as store:
                    found.append(drain(engine, "headrace", store, jobs, left=case.left)[0])
    progress.done()
    return rates


def _fill(engine: EngineName, store: str, case: Case, jobs: int) -> None:
    if case.done:
        ask(engine, "headrace", store, "submit", "fill", case.done, 0)
        drain(engine, "headrace", store, case.done)
    if case.left:
        ask(engine, "headrace", store, "submit", case.ahead, case.left, 0)
    ask(engine, "headrace", store, "submit", case.jobs, jobs, 0)


def flat_lines(rates: dict[Case, list[float]]) -> Iterator[str]:
    """The rates, and their ratio to the empty store, best against best."""
    base = max(next(iter(rates.values())))
    yield "drain by what else is in the store, jobs/s; best (worst)"
    for case, found in rates.items():
        ratio = max(found) / base
        mark = "✓" if ratio >= case.bound else "✗"
        yield (
            f"  {mark} {case.name:<40} {max(found):>8,.0f} ({min(found):,.0f})   "
            f"{ratio:.2f}× of empty (≥ {case.bound:.2f})"
        )
