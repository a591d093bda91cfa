"""What is measured, on whom, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "ENGINES",
    "LABELS",
    "MEASURES",
    "RIVALS",
    "SHORT",
    "SIDES",
    "STATES",
    "EngineName",
    "Measure",
    "Plan",
    "SideName",
    "default",
    "quick",
]

EngineName = Literal["sqlite", "postgres"]
SideName = Literal[
    "headrace",
    "huey",
    "huey-off",
    "pgqueuer",
    "graphile-worker",
    "oban",
    "pg-boss",
    "saq",
    "procrastinate",
    "raw",
]
Measure = Literal["one", "concurrent", "bulk", "drain", "latency", "never", "empty", "full"]

ENGINES: tuple[EngineName, ...] = ("sqlite", "postgres")
SIDES: dict[EngineName, tuple[SideName, ...]] = {
    "sqlite": ("headrace", "huey", "huey-off", "raw"),
    "postgres": ("headrace", "pgqueuer", "graphile-worker", "oban", "pg-boss", "saq", "procrastinate", "raw"),
}
LABELS: dict[SideName, str] = {
    "headrace": "headrace",
    "huey": "huey default",
    "huey-off": "huey sync=OFF",
    "pgqueuer": "pgqueuer",
    "graphile-worker": "graphile-worker",
    "oban": "oban",
    "pg-boss": "pg-boss",
    "saq": "saq",
    "procrastinate": "procrastinate",
    "raw": "raw SQL",
}
SHORT: dict[SideName, str] = LABELS | {"huey": "huey", "huey-off": "OFF", "raw": "raw"}
MEASURES: tuple[Measure, ...] = ("one", "concurrent", "bulk", "drain", "latency")
STATES: tuple[Measure, ...] = ("never", "empty", "full")
"""Drains by when PostgreSQL's planner was told of the tables: never, while they were empty, when they were full."""
RIVALS: tuple[SideName, ...] = ("headrace", "pgqueuer", "graphile-worker")
"""Whose drains are measured in all states."""

WARM: dict[EngineName, int] = {"sqlite": 1000, "postgres": 200}
"""Submits before the clock starts, on every side: a long-lived producer is past its first plans, and until its log has
grown to its size, SQLite has each commit grow a file too."""
SUBMITTERS = 50
CHUNK = 1000
"""Jobs of one bulk submit."""
RAW_BATCH = 500
"""Jobs of one claim and of one finish in the raw drain."""
POOL = 10
"""Connections of a process to PostgreSQL, where a side wants to be told."""


@dataclass(frozen=True)
class Plan:
    """How many jobs each measurement takes; by side, because it should last about as long for each."""

    engine: EngineName
    repeat: int
    one: dict[SideName, int]
    concurrent: dict[SideName, int]
    bulk: dict[SideName, int]
    drain: dict[SideName, int]
    paced: int
    """Jobs of a latency measurement."""
    threads: tuple[int, ...] = (1,)
    """Worker threads huey is tried with; 1 is its default."""
    processes: tuple[int, ...] = (1,)
    """Worker processes that drain one store."""
    per_second: float = 50.0
    flat_history: int = 200_000
    flat_ahead: int = 100_000
    sides: tuple[SideName, ...] = ()
    measures: tuple[Measure, ...] = field(default=MEASURES)

    def count(self, measure: Measure, side: SideName) -> int:
        """How many jobs this side is given; 0: it cannot be measured so."""
        if measure == "latency":
            return 0 if side == "raw" else self.paced
        sizes = {"one": self.one, "concurrent": self.concurrent, "bulk": self.bulk}.get(measure, self.drain)
        return sizes.get(side, 0)


def default(engine: EngineName = "sqlite") -> Plan:
    """The run whose figures may be quoted."""
    return _postgres() if engine == "postgres" else _sqlite()


def quick(engine: EngineName = "sqlite") -> Plan:
    """A look, not a measurement."""
    return _quick_postgres() if engine == "postgres" else _quick_sqlite()


def _sqlite() -> Plan:
    return Plan(
        engine="sqlite",
        repeat=3,
        one={"headrace": 3_000, "huey": 4_000, "huey-off": 15_000, "raw": 5_000},
        concurrent={"headrace": 20_000, "huey": 4_000, "huey-off": 10_000, "raw": 50_000},
        bulk={"headrace": 50_000, "raw": 100_000},
        drain={"headrace": 30_000, "huey": 6_000, "huey-off": 10_000, "raw": 100_000},
        threads=(1, 4),
        paced=200,
        sides=SIDES["sqlite"],
    )


def _quick_sqlite() -> Plan:
    return Plan(
        engine="sqlite",
        repeat=1,
        one={"headrace": 1_000, "huey": 1_000, "huey-off": 3_000, "raw": 2_000},
        concurrent={"headrace": 5_000, "huey": 1_000, "huey-off": 3_000, "raw": 20_000},
        bulk={"headrace": 20_000, "raw": 50_000},
        drain={"headrace": 10_000, "huey": 2_000, "huey-off": 4_000, "raw": 30_000},
        paced=75,
        flat_history=20_000,
        flat_ahead=10_000,
        sides=SIDES["sqlite"],
    )


def _postgres() -> Plan:
    # headrace and the two fastest peers drain equally many jobs: how full a table is matters to all of them.
    return Plan(
        engine="postgres",
        repeat=3,
        one=_by_side(3_000, 3_000, 2_000, 2_000, 2_000, 2_000, 1_500, 5_000),
        concurrent=_by_side(20_000, 8_000, 6_000, 4_000, 6_000, 4_000, 3_000, 50_000),
        bulk=_by_side(80_000, 50_000, 50_000, 8_000, 50_000, 0, 20_000, 100_000),
        drain=_by_side(50_000, 50_000, 50_000, 8_000, 20_000, 1_500, 1_500, 100_000),
        processes=(1, 2),
        paced=200,
        flat_history=1_000_000,
        sides=SIDES["postgres"],
    )


def _quick_postgres() -> Plan:
    return Plan(
        engine="postgres",
        repeat=1,
        one=_by_side(1_000, 1_000, 500, 500, 500, 500, 500, 1_000),
        concurrent=_by_side(5_000, 2_000, 2_000, 2_000, 2_000, 1_000, 1_000, 20_000),
        bulk=_by_side(20_000, 20_000, 20_000, 2_000, 20_000, 0, 5_000, 50_000),
        drain=_by_side(20_000, 20_000, 20_000, 3_000, 5_000, 500, 500, 30_000),
        processes=(1, 2),
        paced=75,
        flat_history=50_000,
        flat_ahead=10_000,
        sides=SIDES["postgres"],
    )


def _by_side(*counts: int) -> dict[SideName, int]:
    return dict(zip(SIDES["postgres"], counts, strict=True))
