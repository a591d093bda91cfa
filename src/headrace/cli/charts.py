"""``charts``: what was finished of late, and how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from headrace.cli.options import common, duration, moment
from headrace.cli.output import console, document, say
from headrace.cli.run import with_app
from headrace.cli.state import State

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.app import App
    from headrace.core.charts import Charts, Series
    from headrace.core.histogram import Quantiles

__all__ = ["charts"]

_BARS = "▁▂▃▄▅▆▇█"
_WIDEST = 30
"""Bars of a line."""


def _ago(value: str) -> datetime | float:
    """A moment, or how long ago it was."""
    try:
        return duration(value)
    except click.BadParameter:
        return moment(value)


@click.command()
@click.option("--task", metavar="TASK", help="Only this task.")
@click.option("--queue", metavar="QUEUE", help="Only this queue.")
@click.option("--since", type=_ago, metavar="WHEN", help="From when on: 2h (ago), or a moment.  [default: 1h]")
@click.option("--until", type=_ago, metavar="WHEN", help="Until when.  [default: now]")
@click.option(
    "--step", type=click.Choice(["minute", "hour", "day"]), help="How long a point is.  [default: by --since]"
)
@common
def charts(
    state: State,
    task: str | None,
    queue: str | None,
    since: datetime | float | None,
    until: datetime | float | None,
    step: str | None,
) -> None:
    """Show what was finished of late, by task and queue, and how long jobs waited and ran.

    Workers count what they finish, and hand it in with their heartbeats. Minutes are kept for 6 hours, hours for 7
    days, days for 90 days. The numbers are approximate: a worker that is killed takes along what it finished since its
    last heartbeat.
    """

    async def work(app: App) -> None:
        found = await app.charts(task=task, queue=queue, since=since, until=until, step=step)  # type: ignore[arg-type]
        if state.json:
            document(found)
        elif not found.series:
            say("nothing was finished in this time, or no worker has told of it yet")
        else:
            console().print(_view(found))

    with_app(state, work)


def _view(found: Charts) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from headrace.cli.fitting import Fitted
    from headrace.cli.render import table
    from headrace.cli.times import moment as told

    right = ("done", "failed", "retried", "waited", "ran")
    made = table("task", "queue", *right, "attempts", right=right)
    for series in found.series:
        total = series.total
        failed = total.failed + total.timed_out + total.lost
        made.add_row(
            series.task,
            series.queue,
            str(total.completed),
            Text(str(failed), "red" if failed else "dim"),
            Text(str(total.retried), "yellow" if total.retried else "dim"),
            _times(total.waiting),
            _times(total.running),
            Text(_line(series, found), "cyan"),
        )
    spans = f"a bar is one {found.step}, from {told(found.since)} to {told(found.until)}; times: p50 / p95 / p99"
    return Group(Fitted(made, spare=("retried", "queue")), Text(spans, "dim"))


def _line(series: Series, found: Charts) -> str:
    """A bar for each point of time, the last ones if there are too many."""
    step = timedelta(seconds=found.step.seconds)
    counts = {point.at: _attempts(point) for point in series.points if point.seconds == found.step.seconds}
    count = min(_WIDEST, -(-(found.until - found.since) // step))
    last = found.since + step * ((found.until - found.since - timedelta(microseconds=1)) // step)
    return _bars([counts.get(last - step * (count - 1 - n), 0) for n in range(count)])


def _attempts(point: object) -> int:
    names = ("completed", "failed", "timed_out", "lost", "snoozed", "released", "cancelled")
    return sum(getattr(point, name) for name in names)


def _bars(counts: Sequence[int]) -> str:
    most = max([1, *counts])
    return "".join(" " if not count else _BARS[min(7, count * 8 // (most + 1))] for count in counts)


def _times(found: Quantiles | None) -> str:
    from headrace.cli.times import span

    return "" if found is None else " / ".join(span(one) for one in (found.p50, found.p95, found.p99))
