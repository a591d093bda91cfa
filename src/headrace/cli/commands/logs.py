"""What handlers said: ``logs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.completion import known
from headrace.cli.exit_codes import DONE
from headrace.cli.ids import resolve
from headrace.cli.options import State, common
from headrace.cli.output.console import document, echo, line, say
from headrace.cli.output.words import counted, time_of_day
from headrace.cli.session import with_app
from headrace.core.control_characters import indented, printable

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.core.entry import LogLine

__all__ = ["logs"]


@click.command()
@click.argument("id", shell_complete=known("job"))
@click.option("--follow", "-f", is_flag=True, help="Go on with new lines until the job has ended.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Only the lines of this attempt.")
@common
def logs(state: State, id: str, follow: bool, attempt: int | None) -> int:
    """Show the log lines of a job's handler.

    Each line: the time, the number of the attempt, the level, the logger, and the message. Ctrl-C ends the following:
    exit code 0 on a terminal, 130 in a script.
    """
    from headrace.cli.output.follow import until_left

    lines = 0

    async def work(app: App) -> int:
        nonlocal lines
        wanted = await resolve(app, id)
        found: list[dict[str, object]] = []
        async for one in app.jobs.logs(wanted, follow=follow, attempt=attempt):
            lines += 1
            if not state.json:
                echo(_words(one), lines=True)
            elif follow:
                line(_record(one))
            else:
                found.append(_record(one))
        if state.json and not follow:
            document({"id": str(wanted), "items": found})
        elif not lines and not state.json:
            say("no log lines: a handler's lines are kept from the level of its logger on (Python's default: WARNING)")
        return DONE

    if not follow:
        return with_app(state, work)
    return until_left(state, lambda: with_app(state, work), lambda: f"{counted(lines, 'line')} seen; the job goes on")


def _record(one: LogLine) -> dict[str, object]:
    import msgspec

    return msgspec.structs.asdict(one)


def _words(one: LogLine) -> str:
    logger = printable(one.logger)
    return indented(f"{time_of_day(one.at)} #{one.attempt} {one.level:<7} {logger}: {one.message}")
