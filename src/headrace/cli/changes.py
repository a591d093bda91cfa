"""What a person changes of jobs that no worker has: their time, queue and priority, or their outcome."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from headrace.cli.acts import act, chooser
from headrace.cli.options import common, when
from headrace.cli.pairs import value
from headrace.cli.run import me
from headrace.cli.state import State
from headrace.core.status import Verb

__all__ = ["move", "postpone", "reprioritise", "resolve", "run_now"]


@click.command()
@chooser
@click.option("--to", "until", type=when, required=True, metavar="TIME", help="A moment, or how long from now: 2h.")
@common
def postpone(state: State, ids: tuple[str, ...], yes: bool, until: datetime | float, **chosen: Any) -> int:
    """Let jobs wait for another time, later or earlier than their own."""
    return act(state, Verb.POSTPONE, ids, yes, chosen, lambda app, id: app.postpone(id, until, by=me()))


@click.command("run-now")
@chooser
@common
def run_now(state: State, ids: tuple[str, ...], yes: bool, **chosen: Any) -> int:
    """Put scheduled and retrying jobs in line at once."""
    return act(state, Verb.RUN_NOW, ids, yes, chosen, lambda app, id: app.run_now(id, by=me()))


@click.command()
@chooser
@click.option("--to", "to_queue", required=True, metavar="QUEUE", help="The queue to move them to.")
@common
def move(state: State, ids: tuple[str, ...], yes: bool, to_queue: str, **chosen: Any) -> int:
    """Move jobs that no worker has to another queue; they keep their arrival."""
    return act(state, Verb.MOVE, ids, yes, chosen, lambda app, id: app.move(id, to_queue, by=me()))


@click.command()
@chooser
@click.option("--to", "priority", required=True, type=click.IntRange(0, 100), metavar="0-100", help="The new priority.")
@common
def reprioritise(state: State, ids: tuple[str, ...], yes: bool, priority: int, **chosen: Any) -> int:
    """Give jobs that no worker has another priority; a higher number goes first."""
    return act(state, Verb.REPRIORITISE, ids, yes, chosen, lambda app, id: app.reprioritise(id, priority, by=me()))


@click.command()
@chooser
@click.option(
    "--result", metavar="JSON", help="Complete them with this, which may be null; it is text if it is no JSON."
)
@click.option("--error", metavar="TEXT", help="Fail them with this error instead.")
@common
def resolve(state: State, ids: tuple[str, ...], yes: bool, result: str | None, error: str | None, **chosen: Any) -> int:
    """Set the outcome of jobs by hand: completed with --result, or failed with --error; they do not run any more."""
    if (result is None) == (error is None):
        raise click.UsageError(
            "say how they end: --result JSON (null, if they have none) or --error TEXT, one of the two"
        )
    end = None if result is None else value(result)
    return act(state, Verb.RESOLVE, ids, yes, chosen, lambda app, id: app.resolve(id, result=end, error=error, by=me()))
