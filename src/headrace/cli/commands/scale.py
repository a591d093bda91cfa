"""``scale``: how many slots each queue needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from headrace.cli.completion import known
from headrace.cli.options import State, duration
from headrace.cli.output.console import console, document, say
from headrace.cli.session import on_app

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.app import App
    from headrace.client.api.scale import QueueScale, ScaleFigures

__all__ = ["scale", "view"]


@click.command()
@click.option("--wait", type=duration, default="30s", show_default=True, help="How long jobs may wait.")
@click.option("--queue", metavar="QUEUE", shell_complete=known("queue"), help="Only this queue.")
@on_app()
async def scale(app: App, state: State, wait: float, queue: str | None) -> None:
    """Show how many slots each queue needs so that 95 % of its jobs begin within --wait.

    The number rises at once with what arrives and waits, and falls within 15 minutes. Where jobs of a queue require
    different things of a worker, each set of requirements has a line of its own below the queue.
    """
    found = await app.stats.scale(wait=wait, queue=queue)
    if state.json:
        document(found)
    elif not found:
        say("no queues yet: the first job of a queue makes it")
    else:
        out = console()
        out.print(view(found, wait, out.width))


def view(found: Sequence[QueueScale], wait: float, columns: int) -> RenderableType:
    """Return the table for a terminal of so many columns, and what its numbers are."""
    from rich.console import Group

    from headrace.cli.output.jobs import table
    from headrace.cli.output.tables import Fitted
    from headrace.cli.output.text import Text
    from headrace.cli.output.words import compact, span

    right = ("backlog", "oldest", "arrive", "a slot does", "running", "slots", "needed", "wait")
    made = table("queue", *right, "requires", right=right)

    def add(name: str, one: ScaleFigures, requires: str, style: str = "") -> None:
        short = one.slots < one.slots_needed
        made.add_row(
            Text(name, style),
            f"{one.backlog}{'+' if one.more else ''}",
            "" if one.oldest_age is None else span(one.oldest_age),
            _rate(one.arrival_rate),
            "" if one.service_rate is None else _rate(one.service_rate),
            str(one.running),
            str(one.slots),
            Text(str(one.slots_needed), "yellow" if short else "green" if one.slots_needed else "dim"),
            "" if one.expected_wait is None else span(one.expected_wait),
            Text(requires, "dim"),
        )

    for queue in found:
        kinds = queue.requirements
        alone = compact(kinds[0].requires) if len(kinds) == 1 and kinds[0].requires else ""
        add(queue.queue, queue, "paused" if queue.paused else alone)
        for kind in kinds if len(kinds) > 1 else ():
            add("", kind, compact(kind.requires) if kind.requires else "nothing", "dim")
    fitted = Fitted(made, spare=("a slot does", "running", "oldest", "arrive", "wait")).at(columns)
    legend = f"needed: slots with which 95 % of the jobs begin within {span(wait)}; wait: expected now"
    return Group(fitted, Text(legend, "dim"))


def _rate(rate: float) -> str:
    """Return a rate in a unit in which it is more than one, if there is such a unit."""
    if rate <= 0:
        return "0"
    unit, size = next((pair for pair in (("s", 1), ("min", 60)) if rate * pair[1] >= 1), ("h", 3600))
    return f"{rate * size:.3g}/{unit}"
