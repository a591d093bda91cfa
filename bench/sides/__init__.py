"""The sides of the comparison, each in a module of its own, loaded only in the processes that run it."""

from __future__ import annotations

import importlib
from typing import Literal, Protocol, cast

from bench.plan import EngineName, SideName

__all__ = ["How", "Side", "load"]

How = Literal["one", "sync", "concurrent", "bulk", "fill", "fill-other", "fill-required", "fill-lines", "paced"]
"""Ways to submit; the kinds of ``fill`` are not measured. ``sync``, which is ``one`` without an event loop, and those
with a second name are headrace's alone: jobs of a task that no worker has, jobs that require what no worker has, jobs
spread over many lines."""

_MODULES: dict[tuple[EngineName, SideName], str] = {
    ("sqlite", "headrace"): "headrace",
    ("sqlite", "huey"): "huey",
    ("sqlite", "huey-off"): "huey_off",
    ("sqlite", "raw"): "raw_sqlite",
    ("postgres", "headrace"): "headrace",
    ("postgres", "pgqueuer"): "pgqueuer",
    ("postgres", "oban"): "oban",
    ("postgres", "saq"): "saq",
    ("postgres", "procrastinate"): "procrastinate",
    ("postgres", "raw"): "raw_postgres",
}


class Side(Protocol):
    """What a module of a side offers; ``store`` is the path of a file or the URL of a database."""

    def submit(self, store: str, how: How, count: int, per_second: float) -> float:
        """Submit so many jobs in one way; how many seconds it took until the last was acknowledged."""
        ...

    def work(self, store: str, threads: int) -> None:
        """Say ``ready``, await a word, work and report (``wire.report``) until the next word, then stop in good order.

        What is reported is the number of jobs whose finish was stored, or, where a peer does not tell, of those whose
        handler has run; and for each job of a paced submit the seconds from its submit to the start of its handler.
        """
        ...

    def remaining(self, store: str) -> int:
        """How many jobs in the store are not over."""
        ...

    def settings(self, store: str) -> str:
        """The versions and settings that matter, for people; read back from the store where they can be."""
        ...


def load(engine: EngineName, name: SideName) -> Side:
    """The side of this name."""
    return cast("Side", importlib.import_module(f"bench.sides.{_MODULES[engine, name]}"))
