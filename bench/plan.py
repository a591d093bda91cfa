"""What is measured, on whom, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LABELS", "MEASURES", "SHORT", "SIDES", "Measure", "Plan", "SideName", "default", "quick"]

SideName = Literal["headrace", "huey", "huey-off", "raw"]
Measure = Literal["one", "concurrent", "bulk", "drain", "latency"]

LABELS: dict[SideName, str] = {
    "headrace": "headrace",
    "huey": "huey default",
    "huey-off": "huey sync=OFF",
    "raw": "raw SQL",
}
SHORT: dict[SideName, str] = {"headrace": "headrace", "huey": "huey", "huey-off": "OFF", "raw": "raw"}
SIDES: tuple[SideName, ...] = ("headrace", "huey", "huey-off", "raw")
MEASURES: tuple[Measure, ...] = ("one", "concurrent", "bulk", "drain", "latency")

WARM = 1000
"""Submits before the clock starts, on every side: until its log has grown to its size, SQLite has each commit grow a
file too, and a long-lived producer is past that."""
SUBMITTERS = 50
CHUNK = 1000
"""Jobs of one bulk submit."""
RAW_BATCH = 500
"""Jobs of one claim and of one finish in the raw drain."""


@dataclass(frozen=True)
class Plan:
    """How many jobs each measurement takes; by side, because it should last about as long for each."""

    repeat: int
    one: dict[SideName, int]
    concurrent: dict[SideName, int]
    bulk: dict[SideName, int]
    drain: dict[SideName, int]
    threads: tuple[int, ...]
    """Worker threads huey is tried with; 1 is its default."""
    paced: int
    """Jobs of a latency measurement."""
    per_second: float = 50.0
    flat_history: int = 200_000
    flat_ahead: int = 100_000
    sides: tuple[SideName, ...] = SIDES
    measures: tuple[Measure, ...] = field(default=MEASURES)

    def count(self, measure: Measure, side: SideName) -> int:
        """How many jobs this side is given; 0: it cannot be measured so."""
        if measure == "latency":
            return 0 if side == "raw" else self.paced
        sizes: dict[Measure, dict[SideName, int]] = {
            "one": self.one,
            "concurrent": self.concurrent,
            "bulk": self.bulk,
            "drain": self.drain,
        }
        return sizes[measure].get(side, 0)


def default() -> Plan:
    """The run whose figures may be quoted."""
    return Plan(
        repeat=3,
        one={"headrace": 3_000, "huey": 4_000, "huey-off": 15_000, "raw": 5_000},
        concurrent={"headrace": 20_000, "huey": 4_000, "huey-off": 10_000, "raw": 50_000},
        bulk={"headrace": 50_000, "raw": 100_000},
        drain={"headrace": 30_000, "huey": 6_000, "huey-off": 10_000, "raw": 100_000},
        threads=(1, 4),
        paced=200,
    )


def quick() -> Plan:
    """A look, not a measurement."""
    return Plan(
        repeat=1,
        one={"headrace": 1_000, "huey": 1_000, "huey-off": 3_000, "raw": 2_000},
        concurrent={"headrace": 5_000, "huey": 1_000, "huey-off": 3_000, "raw": 20_000},
        bulk={"headrace": 20_000, "raw": 50_000},
        drain={"headrace": 10_000, "huey": 2_000, "huey-off": 4_000, "raw": 30_000},
        threads=(1,),
        paced=75,
        flat_history=20_000,
        flat_ahead=10_000,
    )
