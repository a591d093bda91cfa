"""What handlers said: ``logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.ids import resolve
from headrace.cli.options import common
from headrace.cli.output import document, line, say
from headrace.cli.run import with_app
from headrace.cli.state import State
from headrace.cli.words import time_of_day

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.core.entry import LogLine

__all__ = ["logs"]


@click.command()
@click.argument("id")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is said from now on, until the job has ended.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Only what was said in this attempt.")
@common
def logs(state: State, id: str, follow: bool, attempt: int | None) -> None:
    """Show what a job's handler said to logging.

    Each line: the time, the number of the attempt, the level, the logger, and the message.
    """

    async def work(app: App) -> None:
        wanted = await resolve(app, id)
        found: list[dict[str, object]] = []
        empty = True
        async for one in app.logs(wanted, follow=follow, attempt=attempt):
            empty = False
            if not state.json:
                click.echo(_words(one))
            elif follow:
                line(_record(one))
            else:
                found.append(_record(one))
        if state.json and not follow:
            document({"id": str(wanted), "items": found})
        elif empty and not state.json:
            say("nothing was said: a handler's logging shows here from the level that the logger lets through")

    with_app(state, work)


def _record(one: LogLine) -> dict[str, object]:
    import msgspec

    return msgspec.structs.asdict(one)


def _words(one: LogLine) -> str:
    # A message may hold anything, also what would make a terminal do things.
    message = "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in one.message)
    return f"{time_of_day(one.at)} #{one.attempt} {one.level:<7} {one.logger}: {message}"
