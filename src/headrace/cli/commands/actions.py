"""Commands that act on jobs: ``cancel``, ``retry``, ``postpone``, ``resolve`` …; each job gets its own verdict."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import click

from headrace.cli.exit_codes import DONE, FAILED, NOT_FOUND, REFUSED, USAGE
from headrace.cli.ids import NoSuchJob, given, wanted
from headrace.cli.ids import resolve as resolve_id
from headrace.cli.options import F, State, common, duration, filters, pairs
from headrace.cli.options import payload as read_payload
from headrace.cli.output.console import console, document, echo, is_terminal, say
from headrace.cli.output.words import ago, counted, moment
from headrace.cli.session import me, with_app
from headrace.core.job import Job
from headrace.core.status import Verb

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.api.actions import ActionResult
from headrace.cli.options import value, when

__all__ = [
    "act",
    "cancel",
    "chooser",
    "confirm",
    "discard",
    "move",
    "postpone",
    "reprioritise",
    "rerun",
    "resolve",
    "retry",
    "run_now",
]


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


MAX_LISTED_REFUSALS = 5
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

    @classmethod
    def of(cls, acted: ActionResult) -> Verdict:
        """The answer of the App, with its exit code."""
        code, why = DONE, ""
        if acted.answer == "not_found":
            code, why = NOT_FOUND, "not found"
        elif acted.answer == "refused":
            code, why = REFUSED, _why(acted)
            if acted.error in ("InvalidPayload", "InvalidResult"):
                code = USAGE
        return cls(str(acted.id), acted.answer, acted.message, acted.job, code, why)

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
            body = ((await app.jobs.get(id)).payload if whole is None else whole) | laid_over
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
        if ids:
            verdicts = [await _named(app, verb, name, do) for name in ids]
        else:
            verdicts = await _found(app, verb, filters, yes, do)
        _print(verdicts, verb, state, app.host.clock.now())
        return max((verdict.code for verdict in verdicts), default=DONE)

    return with_app(state, work)


async def _found(app: App, verb: Verb, filters: dict[str, Any], yes: bool, do: Do) -> list[Verdict]:
    """Act on the jobs the filters choose; without a status, those the verb can act on."""
    from headrace.client.api.actions import act_on_all

    chosen: Any = await wanted(app, filters)
    count = await app.dry_run(verb, chosen)
    if not count:
        say("no jobs match")
        return []
    await confirm(verb, count, yes)
    return [Verdict.of(one) async for one in act_on_all(app, verb, chosen, lambda id: do(app, id))]


async def _named(app: App, verb: Verb, name: str, do: Do) -> Verdict:
    """Act on the job that is named."""
    from headrace.client.api.actions import answered

    try:
        id = await resolve_id(app, name)
    except NoSuchJob as error:
        return Verdict(name, "not_found", error.message, None, NOT_FOUND, "not found")
    return Verdict.of(await answered(app, verb, id, lambda id: do(app, id)))


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
    echo(f"{question} [y/N]: ", nl=False, err=True)
    try:
        await _typed()
    except asyncio.CancelledError:
        echo(err=True)  # after the ^C
        raise click.Abort from None
    answer = sys.stdin.readline()
    if not answer:
        echo(err=True)  # after a Ctrl-D
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


def _words(verb: Verb) -> str:
    return verb.replace("_", " ")


def _why(acted: ActionResult) -> str:
    if acted.error == "Duplicate":
        return "whose dedup key another job holds"
    if acted.error != "TransitionRefused" or acted.job is None:
        return "that it does not fit"
    job = acted.job
    return f"{job.status} ({job.reason.replace('_', ' ')})" if job.reason else job.status.value


def _changed(job: Job, verb: Verb, now: datetime, brief: bool) -> str:
    """What the act made of the job, where its status does not say it; ``brief``: on a line of a terminal."""
    match verb:
        case Verb.MOVE:
            return f"queue {job.queue}"
        case Verb.REPRIORITISE:
            return f"priority {job.priority}"
        case Verb.POSTPONE | Verb.RETRY if job.available_at > now:
            return f"due {ago(job.available_at, now)}" + ("" if brief else f", {moment(job.available_at)}")
    return ""


def _print(verdicts: Sequence[Verdict], verb: Verb, state: State, now: datetime) -> None:
    if state.json:
        document([verdict.to_dict() for verdict in verdicts])
        return
    refused = [verdict for verdict in verdicts if verdict.code != DONE]
    if len(refused) <= MAX_LISTED_REFUSALS:
        for verdict in refused:
            say(f"error: {verdict.message}")
    done = [verdict.job for verdict in verdicts if verdict.code == DONE and verdict.job]
    if verb is Verb.RERUN:
        for job in done:
            echo(str(job.id))
    elif done:
        from headrace.cli.output.jobs import status_text
        from headrace.cli.output.text import Text

        out = console()
        for job in done:
            line = Text.assemble((str(job.id), "cyan"), f"  {job.task}  ", status_text(job))
            changed = _changed(job, verb, now, out.is_terminal)
            out.print(line.append(f"  {changed}") if changed else line)
    if len(verdicts) > 1:
        told = f"{len(done):,} of {len(verdicts):,} {PAST[verb]}"
        say(f"{told}; {_counted(refused, verb)}" if len(refused) > MAX_LISTED_REFUSALS else told)


def _counted(refused: Sequence[Verdict], verb: Verb) -> str:
    """Many refusals in one line: how many for which reason, most first."""
    reasons = Counter(verdict.why for verdict in refused).most_common()
    counts = ", ".join(f"{count:,} {why}" for why, count in reasons)
    return f"cannot {_words(verb)} {len(refused):,}: {counts} (--json names each)"


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
