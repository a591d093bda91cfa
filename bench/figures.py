"""What was measured: rows of samples, their best and worst, and how they stand to the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bench.plan import EngineName, SideName

__all__ = ["ROWS", "TARGETS", "Figures", "Key", "Row", "Target", "targets"]

Key = Literal[
    "one", "sync", "concurrent", "bulk", "drain", "drain2", "drain4", "p50", "p99", "rss", "never", "empty", "full"
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One line of the table, or a column where sides are many."""

    key: Key
    title: str
    short: str
    unit: Literal["jobs/s", "ms", "MB"]

    @property
    def more_is_better(self) -> bool:
        """Whether a higher figure is the better one."""
        return self.unit == "jobs/s"


ROWS = (
    Row("one", "submit one by one", "one by one", "jobs/s"),
    Row("sync", "… headrace by submit_sync", "submit_sync", "jobs/s"),
    Row("concurrent", "50 concurrent submitters", "50 at once", "jobs/s"),
    Row("bulk", "bulk submit, 1,000 a call", "bulk", "jobs/s"),
    Row("drain", "drain, one worker process", "drain", "jobs/s"),
    Row("drain2", "drain, two worker processes", "2 processes", "jobs/s"),
    Row("drain4", "… huey with 4 threads", "4 threads", "jobs/s"),
    Row("p50", "latency p50 at 50 jobs/s", "p50", "ms"),
    Row("p99", "latency p99 at 50 jobs/s", "p99", "ms"),
    Row("rss", "worker's RSS after the drain", "RSS", "MB"),
    Row("never", "drain, tables never analyzed", "never analyzed", "jobs/s"),
    Row("empty", "drain, analyzed while empty", "analyzed empty", "jobs/s"),
    Row("full", "drain, analyzed when full", "analyzed full", "jobs/s"),
)
_BY_KEY = {row.key: row for row in ROWS}


@dataclass
class Figures:
    """Samples by row and side."""

    samples: dict[Key, dict[SideName, list[float]]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Measurements that came to nothing, and why."""

    def add(self, key: Key, side: SideName, value: float) -> None:
        """One more sample."""
        self.samples.setdefault(key, {}).setdefault(side, []).append(value)

    def best(self, key: Key, side: SideName) -> float | None:
        """The best sample, if there is any."""
        found = self.samples.get(key, {}).get(side)
        if not found:
            return None
        return max(found) if _BY_KEY[key].more_is_better else min(found)

    def worst(self, key: Key, side: SideName) -> float | None:
        """The worst sample, if there is any."""
        found = self.samples.get(key, {}).get(side)
        if not found:
            return None
        return min(found) if _BY_KEY[key].more_is_better else max(found)

    def ratio(self, key: Key, side: SideName) -> float | None:
        """How many times better headrace is than this side, best against best."""
        ours, theirs = self.best(key, "headrace"), self.best(key, side)
        if not ours or not theirs:
            return None
        return ours / theirs if _BY_KEY[key].more_is_better else theirs / ours


@dataclass(frozen=True)
class Target:
    """A figure that was promised."""

    title: str
    found: Callable[[Figures], float | None]
    bound: float
    sign: Literal["≥", "≤", ">"]
    unit: str

    def verdict(self, figures: Figures) -> bool | None:
        """Whether it is met; None: not measured."""
        value = self.found(figures)
        if value is None:
            return None
        return {"≥": value >= self.bound, "≤": value <= self.bound, ">": value > self.bound}[self.sign]


def _ours(key: Key) -> Callable[[Figures], float | None]:
    return lambda figures: figures.best(key, "headrace")


def _against(key: Key, side: SideName) -> Callable[[Figures], float | None]:
    return lambda figures: figures.ratio(key, side)


def _against_best_drain(figures: Figures) -> float | None:
    """Against whatever number of threads suits huey without fsync best."""
    ours = figures.best("drain", "headrace")
    theirs = [rate for key in ("drain", "drain4") if (rate := figures.best(key, "huey-off")) is not None]
    return ours / max(theirs) if ours and theirs else None


def _against_best_peer(key: Key) -> Callable[[Figures], float | None]:
    """Against whichever peer is best at it; bare SQL is no peer."""

    def ratio(figures: Figures) -> float | None:
        ratios = [figures.ratio(key, side) for side in figures.samples.get(key, {}) if side not in ("headrace", "raw")]
        return min((ratio for ratio in ratios if ratio is not None), default=None)

    return ratio


_RIVALS: dict[SideName, float] = {"pgqueuer": 1.5, "graphile-worker": 1.0}
_STATES: tuple[tuple[Key, str], ...] = (
    ("never", "never analyzed"),
    ("empty", "analyzed empty"),
    ("full", "analyzed full"),
)

TARGETS: dict[EngineName, tuple[Target, ...]] = {
    "sqlite": (
        Target("submit one by one, against huey default", _against("one", "huey"), 0.7, "≥", "×"),
        Target("… by submit_sync, against huey default", _against("sync", "huey"), 0.9, "≥", "×"),
        Target("50 concurrent submitters", _ours("concurrent"), 20_000, "≥", "jobs/s"),
        Target("bulk submit", _ours("bulk"), 60_000, "≥", "jobs/s"),
        Target("drain", _ours("drain"), 25_000, "≥", "jobs/s"),
        Target("drain, against huey default", _against("drain", "huey"), 6.0, "≥", "×"),
        Target("drain, against huey sync=OFF at its best", _against_best_drain, 1.0, ">", "×"),
        Target("latency p50", _ours("p50"), 5.0, "≤", "ms"),
        Target("worker's RSS", _ours("rss"), 60.0, "≤", "MB"),
    ),
    "postgres": (
        Target("submit one by one, against pgqueuer", _against("one", "pgqueuer"), 1.0, "≥", "×"),
        Target("50 concurrent submitters", _ours("concurrent"), 15_000, "≥", "jobs/s"),
        Target("50 concurrent submitters, against the best", _against_best_peer("concurrent"), 1.0, ">", "×"),
        Target("bulk submit", _ours("bulk"), 80_000, "≥", "jobs/s"),
        Target("bulk submit, against the best", _against_best_peer("bulk"), 1.0, ">", "×"),
        Target("drain, against pgqueuer", _against("drain", "pgqueuer"), 1.5, "≥", "×"),
        Target("drain, against graphile-worker", _against("drain", "graphile-worker"), 1.0, "≥", "×"),
        Target("latency p50", _ours("p50"), 2.0, "≤", "ms"),
        Target("latency p50, against the best", _against_best_peer("p50"), 1.0, "≥", "×"),
        Target("worker's RSS", _ours("rss"), 60.0, "≤", "MB"),
    ),
}

_STATE_TARGETS = tuple(
    Target(f"drain, {state}, against {side}", _against(key, side), bound, "≥", "×")
    for key, state in _STATES
    for side, bound in _RIVALS.items()
)


def targets(engine: EngineName, figures: Figures) -> tuple[Target, ...]:
    """What was promised of the kind of figures that were measured."""
    states = {key for key, _ in _STATES}
    asked = _STATE_TARGETS if states & set(figures.samples) else ()
    return asked if asked and not set(figures.samples) - states else (*TARGETS[engine], *asked)
