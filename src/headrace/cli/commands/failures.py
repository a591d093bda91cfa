"""Failures in groups: ``failures``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.ids import given, wanted
from headrace.cli.options import State, common, filters
from headrace.cli.output.console import console, document, say
from headrace.cli.output.words import ago, cut, short
from headrace.cli.session import with_app

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from rich.console import Console

    from headrace.app import App
    from headrace.cli.output.tables import Fitted
    from headrace.core.stats.errors import RecentError
    from headrace.core.stats.failures import FailureGroup

__all__ = ["failures"]


@click.command()
@filters
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Groups, the largest first.")
@click.option("--recent", is_flag=True, help="Errors of all attempts of the last hour; with --task or --queue.")
@common
def failures(state: State, limit: int, recent: bool, **chosen: Any) -> None:
    """List what fails, in groups of jobs that failed alike, the largest first.

    Alike are errors of one task, of one type, from one place in your code. Jobs that failed are counted, and jobs that
    failed and are tried again; with --status others. The fingerprint chooses the jobs of a group wherever jobs are
    chosen: headrace retry --fingerprint 3f2a9c…

    --recent counts attempts instead of jobs, also those of jobs that succeeded later. Each error has one of its jobs.
    """
    filters = given(**chosen)
    if recent and (other := sorted({*filters} - {"task", "queue"})):
        raise click.UsageError(f"--recent knows no jobs, so it cannot choose by {', '.join(other)}: leave that out")

    async def work(app: App) -> None:
        if recent:
            await _recent(app, state, limit, filters)
            return
        groups = await app.jobs.failures(limit=limit, **await wanted(app, filters))
        if state.json:
            document([group.to_dict() for group in groups])
        elif not groups:
            say("no failures match" if filters else "nothing has failed")
        else:
            out = console()
            out.print(_table(groups, app.host.clock.now(), out))

    with_app(state, work)


async def _recent(app: App, state: State, limit: int, filters: Mapping[str, Any]) -> None:
    task, queue = (_only(name, filters.get(name)) for name in ("task", "queue"))
    errors = await app.stats.errors(limit=limit, task=task, queue=queue)
    if state.json:
        document([error.to_dict() for error in errors])
    elif not errors:
        say("no attempt has failed within the hour")
    else:
        out = console()
        out.print(_errors_table(errors, app.host.clock.now(), out))


def _only(name: str, value: Any) -> str | None:
    if value is None:
        return None
    values = [value] if isinstance(value, str) else list(value)
    if len(values) != 1:
        raise click.UsageError(f"--recent takes one --{name}, not {len(values)}")
    return str(values[0])


def _errors_table(errors: Sequence[RecentError], now: datetime, out: Console) -> Fitted:
    from headrace.cli.output.jobs import table
    from headrace.cli.output.tables import Fitted
    from headrace.cli.output.text import Text

    made = table("fingerprint", "attempts", "last", "job", "error", right=("attempts",))
    for error in errors:
        where = f" at {error.place}" if error.place else ""
        made.add_row(
            Text(error.fingerprint, "cyan"),
            f"{error.attempts:,}",
            ago(error.last_seen, now),
            short(error.example) if out.is_terminal else str(error.example),
            Text(f"{error.task}: {error.type}{where}"),
        )
    return Fitted(made, ("last",), wrap=True)


def _table(groups: Sequence[FailureGroup], now: datetime, out: Console) -> Fitted:
    from headrace.cli.output.jobs import table
    from headrace.cli.output.tables import Fitted
    from headrace.cli.output.text import Text

    made = table("fingerprint", "jobs", "failed", "first", "last", "newest", "error", right=("jobs", "failed"))
    for group in groups:
        where = f" at {group.place}" if group.place else ""
        made.add_row(
            Text(group.fingerprint or "–", "cyan"),
            f"{group.jobs:,}",
            f"{group.failed:,}",
            ago(group.first_seen, now),
            ago(group.last_seen, now),
            short(group.example) if out.is_terminal else str(group.example),
            Text(cut(f"{group.task}: {group.type}{where}: {group.message}", 300)),
        )
    return Fitted(made, ("newest", "first", "failed"), wrap=True)
