"""Whether headrace stays as fast when its store is full of what the worker need not touch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.children import ask
from bench.harness import drain
from bench.plan import Plan
from bench.progress import Progress

__all__ = ["flat", "flat_lines"]


def flat(plan: Plan, home: Path) -> dict[str, list[float]]:
    """Drain rates of the same jobs, by the state of the store."""
    jobs = plan.drain["headrace"]
    history, ahead = f"{plan.flat_history:,} finished jobs", f"{plan.flat_ahead:,} jobs ahead it may not take"
    left = {"empty": 0, history: 0, ahead: plan.flat_ahead}
    rates: dict[str, list[float]] = {name: [] for name in left}
    progress = Progress(len(left) * (plan.repeat + 1))
    with TemporaryDirectory(dir=home) as directory:
        stores = {name: Path(directory) / f"{at}.db" for at, name in enumerate(left)}
        for name, store in stores.items():
            progress.step(f"filling: {name}")
            if name == history:
                ask("headrace", store, "submit", "fill", plan.flat_history, 0)
                drain("headrace", store, plan.flat_history)
            elif name == ahead:
                ask("headrace", store, "submit", "fill-other", plan.flat_ahead, 0)
            ask("headrace", store, "submit", "fill", jobs, 0)
        for _ in range(plan.repeat):
            for name, store in stores.items():
                progress.step(f"drain: {name}")
                # A store that was closed in good order is one file.
                fresh = Path(shutil.copy(store, Path(directory) / "fresh.db"))
                rates[name].append(drain("headrace", fresh, jobs, left=left[name])[0])
                for part in fresh.parent.glob("fresh.db*"):
                    part.unlink()
    progress.done()
    return rates


def flat_lines(rates: dict[str, list[float]]) -> Iterator[str]:
    """The rates, and their ratio to the empty store, best against best."""
    base = max(rates["empty"])
    yield "drain by what else is in the store, jobs/s"
    for name, found in rates.items():
        yield f"  {name:<36} {max(found):>8,.0f} ({min(found):,.0f})   {max(found) / base:.2f}× of empty"
