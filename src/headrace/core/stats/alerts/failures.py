"""Alerts about tasks whose attempts fail, and about dead letters that become more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from headrace.core.explain.explanation import many
from headrace.core.stats.alerts.alert import Alert, Kind, Level
from headrace.core.stats.rollup import Rollup, Totals

__all__ = ["FAILURE_SPAN", "failure_alerts"]

FAILURE_SPAN = timedelta(hours=1)
"""How far back failures count; those before are counted over the same time again, and compared."""
FAILING_RATIO, MOSTLY_FAILING_RATIO, MIN_ATTEMPTS = 0.2, 0.5, 5
"""The share of failed attempts from which a task is reported, and from which it fails; and their minimum number."""
GROWTH_RATIO, MIN_DEAD_LETTERS = 2.0, 5
"""Dead letters grow if so many times as many jobs failed for good as before, and at least so many."""


def failure_alerts(rows: Iterable[Rollup], now: datetime) -> Iterator[Alert]:
    """Yield alerts about tasks that fail, and about their dead letters; ``rows``: of twice ``FAILURE_SPAN``."""
    recent, before = dict[str, Totals](), dict[str, Totals]()
    for row in rows:
        age = now - row.at
        if age < 2 * FAILURE_SPAN:
            totals = (recent if age < FAILURE_SPAN else before).setdefault(row.task, Totals())
            totals.tally(row.totals)
            totals.died += row.totals.died
    for task, totals in sorted(recent.items()):
        bad = totals.failed + totals.timed_out + totals.lost
        share = bad / (bad + totals.completed) if bad else 0.0
        if bad >= MIN_ATTEMPTS and share >= FAILING_RATIO:
            message = f"task {task}: {many(bad, 'attempt')} failed within the hour, {share:.0%} of all"
            remedy = f"look at its errors: headrace failures --recent --task {task}"
            level: Level = "fail" if share >= MOSTLY_FAILING_RATIO else "warn"
            yield Alert(Kind.FAILING_TASK, level, task, message, remedy)
        died, earlier = totals.died, before.get(task, Totals()).died
        if died >= MIN_DEAD_LETTERS and died >= GROWTH_RATIO * earlier:
            message = f"task {task}: {many(died, 'job')} failed for good within the hour, {earlier:,} in the one before"
            remedy = f"mend the error, then retry them: headrace failures --task {task}"
            yield Alert(Kind.DEAD_LETTERS, "warn", task, message, remedy)
