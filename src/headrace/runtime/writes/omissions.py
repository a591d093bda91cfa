"""Logs and counts jobs that should have been stored with a change, and were not."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from headrace.core.change import Applied, LeftOut, Verdict

__all__ = ["COUNTED", "log_left_out", "log_verdicts"]

_log = logging.getLogger("headrace.changes")

COUNTED: Counter[str] = Counter()
"""How many were left out by this process, by task: for metrics, which are those of a process."""


def log_left_out(jobs: Iterable[LeftOut]) -> None:
    """Log and count these, which were not stored."""
    for one in jobs:
        COUNTED[one.task] += 1
        _log.error("job %s of %s should have been stored with a change, and was refused: %s", one.id, one.task, one.why)


def log_verdicts(verdicts: Iterable[Verdict]) -> None:
    """Log and count what the changes of these verdicts should have inserted, and did not."""
    for verdict in verdicts:
        if isinstance(verdict, Applied) and verdict.left_out:
            log_left_out(verdict.left_out)
