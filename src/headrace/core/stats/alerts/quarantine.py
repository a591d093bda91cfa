"""Alerts about jobs in quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.core.explain.explanation import many
from headrace.core.job import Job
from headrace.core.lifecycle.suspects import in_quarantine
from headrace.core.stats.alerts.alert import Alert, Kind

__all__ = ["quarantine_alerts"]


def quarantine_alerts(suspects: Iterable[Job], *, more: bool) -> Iterator[Alert]:
    """Yield an alert if some of these suspects are in quarantine; ``more``: there are others."""
    apart = sum(map(in_quarantine, suspects))
    if apart:
        count = f"{apart:,} or more jobs" if more else many(apart, "job")
        message = f"{count} in quarantine: workers died while they ran, so each worker runs one such job at a time"
        remedy = "headrace jobs --suspect lists them; look in the logs of the dead workers for what killed them"
        yield Alert(Kind.QUARANTINE, "warn", "", message, remedy)
