"""How often a test repeats what may go well by chance: kills, cuts, and jobs by the thousand.

``make test`` does it once for each point at which something may break, ``make soak`` as often as the test says.
"""

from __future__ import annotations

import os

__all__ = ["repeats"]

NAME = "HEADRACE_SOAK"
"""The environment variable that ``make soak`` sets."""


def repeats(soak: int, otherwise: int = 1) -> int:
    """How often this run does it."""
    return soak if os.environ.get(NAME) else otherwise
