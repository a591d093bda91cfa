"""The sides of the comparison, each in a module of its own, loaded only in the processes that run it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Literal, Protocol, cast

from bench.plan import SideName

__all__ = ["How", "Side", "load"]

How = Literal["one", "concurrent", "bulk", "fill", "fill-other", "paced"]

_MODULES: dict[SideName, str] = {
    "headrace": "bench.sides.headrace",
    "huey": "bench.sides.huey",
    "huey-off": "bench.sides.huey_off",
    "raw": "bench.sides.raw",
}


class Side(Protocol):
    """What a module of a side offers."""

    def submit(self, path: Path, how: How, count: int, per_second: float) -> float:
        """Submit so many jobs in one way; how many seconds it took until the last was acknowledged."""
        ...

    def work(self, path: Path, count: int, threads: int) -> None:
        """Say ``ready``, await a word, work until so many jobs are over for good, say so, await a word.

        The second line has ``seconds`` from the word to the moment the last finish was stored, and ``waits``: for
        each job of a paced submit, the seconds from its submit to the start of its handler.
        """
        ...

    def remaining(self, path: Path) -> int:
        """How many jobs in the store are not over."""
        ...

    def settings(self, path: Path) -> str:
        """The settings that matter, read back from the store, for people."""
        ...


def load(name: SideName) -> Side:
    """The side of this name."""
    return cast("Side", importlib.import_module(_MODULES[name]))
