"""The depth of a queue over time, as a small drawing without axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

__all__ = ["SmallDepth", "small_depth"]

WIDE, HIGH = 96.0, 22.0


@dataclass(frozen=True)
class SmallDepth:
    """A filled line, the depth at its end, and the greatest depth."""

    path: str
    last: float
    most: float
    width: float = WIDE
    height: float = HIGH


def small_depth(moments: Sequence[datetime], depth: Mapping[datetime, float]) -> SmallDepth | None:
    """Return the drawing of these moments, from the first to the last; None: there are fewer than two."""
    if len(moments) < 2:
        return None
    first, whole = moments[0], moments[-1] - moments[0]
    most = max((depth.get(one, 0.0) for one in moments), default=0.0)
    scale = (HIGH - 3) / (most or 1.0)
    places = [
        f"{round((one - first) / whole * WIDE, 1)} {round(HIGH - 1 - depth.get(one, 0.0) * scale, 1)}"
        for one in moments
    ]
    return SmallDepth(f"M0 {HIGH}L{'L'.join(places)}L{WIDE} {HIGH}Z", depth.get(moments[-1], 0.0), most)
