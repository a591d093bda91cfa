"""How often a test repeats what may go well by chance: kills, cuts, jobs by the thousand, and made-up examples.

``make test`` kills once for each point at which something may break, ``make soak`` as often as the test says. Examples
are other ones in each run, a third of what the test says; with ``--every-engine``, as in ``make fuzz``, they are all.
"""

from __future__ import annotations

import os

__all__ = ["THOROUGH", "examples", "repeats", "thorough"]

SOAK = "HEADRACE_SOAK"
"""The environment variable that ``make soak`` sets."""

THOROUGH = "HEADRACE_THOROUGH"
"""The one that is set by ``--every-engine``, so that the processes that share the tests have it."""


def repeats(soak: int, otherwise: int = 1) -> int:
    """How often this run does it."""
    return soak if os.environ.get(SOAK) else otherwise


def examples(all_of_them: int) -> int:
    """How many this run tries."""
    return all_of_them if thorough() else max(all_of_them // 3, 1)


def thorough() -> bool:
    """Whether this run tries all there is."""
    return bool(os.environ.get(SOAK) or os.environ.get(THOROUGH))
