"""What a person does to jobs: ``cancel``, ``retry``, ``rerun``, ``discard``; each job gets its own verdict."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import click

from headrace.cli.failures import DONE, FAILED, NOT_FOUND, REFUSED, USAGE
from headrace.cli.ids import NoSuchJob, every, given, resolve, wanted
from headrace.cli.options import F, common, duration, filters
from headrace.cli.output import console, document, is_terminal, say
from headrace.cli.pairs import pairs
from headrace.cli.pairs import payload as read_payload
from headrace.cli.run import me, with_app
from headrace.cli.state import State
from headrace.cli.words import counted
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.core.table import TABLE
from headrace.errors import Duplicate, InvalidPayload, InvalidResult, JobNotFound, TransitionRefused

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["act", "cancel", "chooser", "confirm", "discard", "rerun", "retry"]

PAST = {
    Verb.CANCEL: "cancelled",
    Verb.RETRY: "retried",
    Verb.RERUN: "rerun",
    Verb.DISCARD: "discarded",
    Verb.POSTPONE: "postponed",
    Verb.RUN_NOW: "put in line",
    Verb.MOVE: "moved",
    Verb.REPRIORITISE: "reprioritised",
    Verb.RESOLVE: "resolved",
}

Do = Callable[["App", UUID], Awaitable[Job]]
"""Does it to one job."""


FEW = 5
"""So many refusals are told one by one, more are counted: what went wrong must not scroll away."""


class Verdict(NamedTuple):
    """What came of acting on one job."""

    id: str
    verdict: str
    """done, requested (a running job will be told), refused, or not_found."""
    message: str | None
    job: Job | None
    code: int
    why: str = ""
    """Of a refusal: what it shares with others, so that they can be counted."""

    def to_dict(self) -> dict[str, Any]:
        """As printed for programs."""
        record = self.job.to_dict() if self.job else None
        return {"id": self.id, "verdict": self.verdict, "message": self.message, "job": record}


def chooser(fn: F) -> F:
    """Add the ways of naming several jobs."""
    fn = click.option("--yes", "-y", is_flag=True, help="Do not ask before acting on what the filters find.")(fn)
    return click.argument("ids", nargs=-1, metavar="[ID]...")(filters(fn))


@click.command()
@chooser
@common
def cancel(state: State, ids: tuple[str, ...], yes: bool, **chosen: Any) -> int:
    """Cancel jobs: waiting ones end at once, running ones are asked to stop."""
    return act(state, Verb.CANCEL, ids, yes, chosen, lambda app, id: app.cancel(id, by=me()))


@click.command()
@chooser
@click.option("--delay", type=duration, default=0.0, metavar="DURATION", help="Start no sooner than this from now.")
@common
def retry(state: State, ids: tuple[str, ...], yes: bool, delay: float, **chosen: Any) -> int:
    """Retry failed or cancelled jobs: the same jobs, with a new budget."""
    return act(state, Verb.RETRY, ids, yes, chosen, lambda app, id: app.retry(id, delay=delay, by=me()))


@click.command()
@chooser
@click.option("--payload", metavar="JSON|@FILE|-", help="Another payload, whole.")
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another value of one argument; may be given several times.",
)
@click.option("--to", "to_queue", metavar="QUEUE", help="Another queue.")
@click.option("--priority", type=click.IntRange(0, 100), metavar="0-100", help="Another priority.")
@click.option("--delay", type=duration, metavar="DURATION", help="Start no sooner than this from now.")
@common
def rerun(
    state: State,
    ids: tuple[str, ...],
    yes: bool,
    payload: str | None,
    arguments: tuple[str, ...],
    to_queue: str | None,
    priority: int | None,
    delay: float | None,
    **chosen: Any,
) -> int:
    """Submit ended jobs again as new jobs, with the same payload and options or with others; print the new ids."""
    whole, laid_over = None if payload is None else read_payload(payload, ()), pairs(arguments)
    asked = {"queue": to_queue, "priority": priority, "delay": delay}
    options: Any = {name: value for name, value in asked.items() if value is not None}

    async def do(app: App, id: UUID) -> Job:
        body = whole
        if laid_over:
            body = ((await app.get(id)).payload if whole is None else whole) | laid_over
        handle = await app.rerun(id, payload=body, by=me(), **options)
        return handle.last or await handle.refresh()

    return act(state, Verb.RERUN, ids, yes, chosen, do)


@click.command()
@chooser
@common
def discard(state: State, ids: tuple[str, ...], yes: bool, **chosen: Any) -> int:
    """Discard completed or failed jobs: they end cancelled (discarded) and can only be rerun."""
    return act(state, Verb.DISCARD, ids, yes, chosen, lambda app, id: app.discard(id, by=me()))


def act(state: State, verb: Verb, ids: Sequence[str], yes: bool, chosen: dict[str, Any], do: Do) -> int:
    """Do it to the jobs that are named or found by filters; the worst of the exit codes."""
    filters = given(**chosen)
    if bool(ids) == bool(filters):
        raise click.UsageError("name jobs by their ids or choose them by filters (--status, --task …), one of the two")

    async def work(app: App) -> int:
        verdicts = [await _judged(app, verb, name, do) for name in ids or await _found(app, verb, filters, yes)]
        _print(verdicts, verb, state)
        return max((verdict.code for verdict in verdicts), default=DONE)

    return with_app(state, work)


async def _found(app: App, verb: Verb, filters: dict[str, Any], yes: bool) -> list[str]:
    """The ids of the jobs the filters choose; without a status, those the verb can act on."""
    chosen = {"status": [status.value for status in TABLE[verb]]} | await wanted(app, filters)
    count = await app.count(**chosen)
    if not count:
        say("no jobs match")
        return []
    await confirm(verb, count, yes)
    # All ids are collected first: acting while paging would move jobs under the cursor.
    names = [str(job.id) async for job in every(app, **chosen)]
    # Oldest first: a job that waits for others is retried after them, or it would be ended for their sake once more.
    names.reverse()
    return names


async def confirm(verb: Verb, count: int, yes: bool) -> None:
    """Ask before acting on several jobs.

    :raises click.UsageError: there is nobody to ask
    :raises click.exceptions.Exit: the answer is no
    """
    if yes:
        if is_terminal(stderr=True) and count > 1:
            say(f"{_words(verb)}: {counted(count, 'job')}")
        return
    if not is_terminal(stderr=True):
        raise click.UsageError(f"this would {_words(verb)} {counted(count, 'job')}: say --yes")
    if not await _agreed(f"{_words(verb)} {counted(count, 'job')}?"):
        say("nothing done")
        raise click.exceptions.Exit(FAILED)


async def _agreed(question: str) -> bool:
    """Whether the person says yes; :raises click.Abort: they press Ctrl-C"""
    click.echo(f"{question} [y/N]: ", nl=False, err=True)
    try:
        await _typed()
    except asyncio.CancelledError:
        click.echo(err=True)  # after the ^C
        raise click.Abort from None
    answer = sys.stdin.readline()
    if not answer:
        click.echo(err=True)  # after a Ctrl-D
    return answer.strip().lower() in ("y", "yes")


async def _typed() -> None:
    """Wait for a line on stdin while the loop goes on: in a read that blocks, the loop would not hear a Ctrl-C."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(sys.stdin, heard.set)
    except (NotImplementedError, OSError, ValueError):  # a file, or a platform that cannot wait for a terminal
        return
    try:
        await heard.wait()
    finally:
        loop.remove_reader(sys.stdin)


async def _judged(app: App, verb: Verb, name: str, do: Do) -> Verdict:
    """Act on one job; what came of it, whatever it is."""
    try:
        id = await resolve(app, name)
        job = await do(app, id)
    except (JobNotFound, NoSuchJob) as error:
        return Verdict(name, "not_found", _text(error), None, NOT_FOUND, "not found")
    except (
        InvalidResult,
        InvalidPayload,
    ) as error:  # it does not fit the task of this job, but perhaps that of another
        return Verdict(str(id), "refused", str(error), await app.get(id), USAGE, "that it does not fit")
    except (TransitionRefused, Duplicate) as error:
        # A key held by another job is a refusal too: the message names the holder, the job is unchanged.
        job = error.job if error.job.id == id else await app.get(id)
        return Verdict(str(id), "refused", str(error), job, REFUSED, _why(error))
    return Verdict(str(id), "done" if verb is not Verb.CANCEL or job.ended else "requested", None, job, DONE)


def _words(verb: Verb) -> str:
    return verb.replace("_", " ")


def _why(error: TransitionRefused | Duplicate) -> str:
    if isinstance(error, Duplicate):
        return "whose dedup key another job holds"
    return f"{error.job.status} ({error.job.reason.replace('_', ' ')})" if error.job.reason else error.job.status.value


def _text(error: BaseException) -> str:
    return error.message if isinstance(error, click.ClickException) else str(error)


def _print(verdicts: Sequence[Verdict], verb: Verb, state: State) -> None:
    if state.json:
        document([verdict.to_dict() for verdict in verdicts])
        return
    refused = [verdict for verdict in verdicts if verdict.code != DONE]
    if len(refused) <= FEW:
        for verdict in refused:
            say(f"error: {verdict.message}")
    done = [verdict.job for verdict in verdicts if verdict.code == DONE and verdict.job]
    if verb is Verb.RERUN:
        for job in done:
            click.echo(str(job.id))
    elif done:
        from rich.text import Text

        from headrace.cli.render import status_text

        out = console()
        for job in done:
            out.print(Text.assemble((str(job.id), "cyan"), f"  {job.task}  ", status_text(job)))
    if len(verdicts) > 1:
        told = f"{len(done):,} of {len(verdicts):,} {PAST[verb]}"
        say(f"{told}; {_counted(refused, verb)}" if len(refused) > FEW else told)


def _counted(refused: Sequence[Verdict], verb: Verb) -> str:
    """Many refusals in one line: how many for which reason, most first."""
    reasons = Counter(verdict.why for verdict in refused).most_common()
    counts = ", ".join(f"{count:,} {why}" for why, count in reasons)
    return f"cannot {_words(verb)} {len(refused):,}: {counts} (--json names each)"
