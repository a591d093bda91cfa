"""``charts``: what was finished of late, and how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from headrace.cli.completion import known
from headrace.cli.ids import check_range
from headrace.cli.options import State, in_words, when
from headrace.cli.output.console import console, document, say
from headrace.cli.session import on_app

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.app import App
    from headrace.core.stats.charts import Charts, Series
    from headrace.core.stats.histogram import Quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["charts", "stats", "view"]


_SIGNS = "▁▂▃▄▅▆▇█"
_MAX_BARS = 16
"""Bars of a line: what the narrowest column has room for."""
_ATTEMPTS = ("completed", "failed", "timed_out", "lost", "snoozed", "released", "cancelled")


@click.command()
@click.option("--task", metavar="TASK", shell_complete=known("task"), help="Only this task.")
@click.option("--queue", metavar="QUEUE", shell_complete=known("queue"), help="Only this queue.")
@click.option("--since", type=when, metavar="WHEN", help="From when on: 2h (ago), or a moment.  [default: 1h]")
@click.option("--until", type=when, metavar="WHEN", help="Until when.  [default: now]")
@click.option(
    "--step", type=click.Choice(["minute", "hour", "day"]), help="How long a point is.  [default: by --since]"
)
@on_app()
async def charts(
    app: App,
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
    hour_ago, now = 3600.0 if since is None else since, 0.0 if until is None else until
    check_range(app.host.clock.now(), hour_ago, now, "--since", "--until")
    found = await app.stats.charts(task=task, queue=queue, since=since, until=until, step=step)  # type: ignore[arg-type]
    if state.json:
        document(found)
    elif not found.series:
        say("nothing was finished in this time, or no worker has told of it yet")
    else:
        out = console()
        out.print(view(found, out.width))


def view(found: Charts, columns: int) -> RenderableType:
    """Return the table for a terminal of so many columns, and what its numbers are."""
    from rich.console import Group

    from headrace.cli.output.jobs import table
    from headrace.cli.output.tables import Fitted
    from headrace.cli.output.text import Text
    from headrace.cli.output.words import moment as moment_text
    from headrace.cli.output.words import span

    right = ("done", "failed", "retried", "waited", "ran")
    made = table("task", "queue", *right, "attempts", right=right)
    steps = -(-(found.until - found.since) // timedelta(seconds=found.step.seconds))
    wide = timedelta(seconds=found.step.seconds) * -(-steps // _MAX_BARS)
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
            Text(_line(series, found, wide), "cyan"),
        )
    # Queue and task distinguish the lines, so they stay.
    fitted = Fitted(made, spare=("retried", "attempts", "waited")).at(columns)
    shown = [str(column.header) for column in fitted.columns]
    legend = f"{moment_text(found.since)} to {moment_text(found.until)}"
    if "attempts" in shown:
        legend += f", a bar is {span(wide.total_seconds())}"
    times = ", ".join(name for name in ("waited", "ran") if name in shown)
    return Group(fitted, Text(f"{legend}; numbers are attempts; {times}: p50 / p95", "dim"))


def _line(series: Series, found: Charts, wide: timedelta) -> str:
    """Return a bar for each span of time; what is kept by longer ones only is shown where they begin."""
    counts = [0] * -(-(found.until - found.since) // wide)
    for point in series.points:
        counts[max(0, (point.at - found.since) // wide)] += sum(getattr(point, name) for name in _ATTEMPTS)
    return _bars(counts)


def _bars(counts: Sequence[int]) -> str:
    most = max([1, *counts])
    return "".join("·" if not count else _SIGNS[-(-count * 8 // most) - 1] for count in counts)


def _times(found: Quantiles | None) -> str:
    from headrace.cli.output.words import span

    return "" if found is None else f"{span(found.p50)} / {span(found.p95)}"


@click.command()
@in_words
@on_app()
async def stats(app: App, state: State) -> None:
    """Count jobs by status, and check the ledger: submitted = live + ended + pruned."""
    found = await app.stats.counts()
    if state.json:
        document(found)
        return
    from headrace.cli.output.store import stats_view

    console().print(stats_view(found, app.host.clock.now()))
