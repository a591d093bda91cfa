"""Commands that act on jobs: ``cancel``, ``retry``, ``postpone``, ``resolve`` …; each job gets its own verdict."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from headrace.cli.completion import known
from headrace.cli.exit_codes import DONE, FAILED, NOT_FOUND, REFUSED, USAGE
from headrace.cli.ids import NoSuchJob, given, wanted
from headrace.cli.ids import resolve as resolve_id
from headrace.cli.options import PRIORITY, F, State, common, duration, filters, pairs, value, when
from headrace.cli.options import payload as read_payload
from headrace.cli.options import priority as to_priority
from headrace.cli.output.console import console, document, echo, is_terminal, say
from headrace.cli.output.statuses import record_of, word_of
from headrace.cli.output.words import ago, counted, moment
from headrace.cli.session import me, with_app
from headrace.core.job import Job
from headrace.core.lifecycle.actions import ACTIONS, Action, RerunAction, ResolveAction
from headrace.core.status import Verb

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.api.actions import ActionResult

__all__ = ["COMMANDS", "confirm"]


MAX_LISTED_REFUSALS = 5
"""So many refusals are printed one by one, more are counted: what went wrong must not scroll away."""


class Verdict(NamedTuple):
    """The outcome of an action on one job."""

    id: str
    verdict: str
    """done, requested (a running job will be stopped), refused, or not_found."""
    message: str | None
    job: Job | None
    code: int
    why: str = ""
    """Of a refusal: what it shares with others, so that they can be counted."""

    @classmethod
    def of(cls, acted: ActionResult) -> Verdict:
        """Return the result of the App, with its exit code."""
        code, why = DONE, ""
        if acted.answer == "not_found":
            code, why = NOT_FOUND, "not found"
        elif acted.answer == "refused":
            code, why = REFUSED, _why(acted)
            if acted.error in ("InvalidPayload", "InvalidResult"):
                code = USAGE
        return cls(str(acted.id), acted.answer, acted.message, acted.job, code, why)

    def to_dict(self) -> dict[str, Any]:
        """Return it as printed for programs."""
        record = record_of(self.job) if self.job else None
        return {"id": self.id, "verdict": self.verdict, "message": self.message, "job": record}


def act(state: State, action: Action, ids: Sequence[str], yes: bool, chosen: dict[str, Any]) -> int:
    """Do the action on the jobs that are named or found by filters; return the worst of the exit codes."""
    filters = given(**chosen)
    if bool(ids) == bool(filters):
        raise click.UsageError("name jobs by their ids or choose them by filters (--status, --task …), one of the two")

    async def work(app: App) -> int:
        if ids:
            verdicts = [await _named(app, action, name) for name in ids]
        else:
            verdicts = await _found(app, action, filters, yes)
        _print(verdicts, action.verb, state, app.host.clock.now())
        return max((verdict.code for verdict in verdicts), default=DONE)

    return with_app(state, work)


async def _found(app: App, action: Action, filters: dict[str, Any], yes: bool) -> list[Verdict]:
    """Act on the jobs that the filters choose; without a status, those that the action can begin from."""
    chosen: Any = await wanted(app, filters)
    jobs = app.jobs.where(**chosen)
    count = await jobs.preview(action.verb)
    if not count:
        say("no jobs match")
        return []
    await confirm(action.verb, count, yes)
    return [Verdict.of(one) async for one in jobs.act(action, by=me())]


async def _named(app: App, action: Action, name: str) -> Verdict:
    """Act on the job that is named."""
    from headrace.client.api.actions import result_of

    try:
        id = await resolve_id(app, name)
    except NoSuchJob as error:
        return Verdict(name, "not_found", error.message, None, NOT_FOUND, "not found")
    return Verdict.of(await result_of(app, id, action, me()))


async def confirm(verb: Verb, count: int, yes: bool) -> None:
    """Wait for a confirmation before an action on several jobs.

    :raises click.UsageError: there is no person to confirm
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
    """Return whether the person says yes; :raises click.Abort: they press Ctrl-C"""
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
    """Wait for a line on stdin while the loop goes on: in a read that blocks, the loop would not notice a Ctrl-C."""
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
    return f"{word_of(job)} ({job.reason.replace('_', ' ')})" if job.reason else word_of(job)


def _changed(job: Job, verb: Verb, now: datetime, brief: bool) -> str:
    """Return what the action made of the job, where its status does not say it; ``brief``: on a line of a terminal."""
    match verb:
        case Verb.MOVE:
            return f"queue {job.queue}"
        case Verb.REPRIORITISE:
            return f"priority {job.priority} ({job.priority_band})"
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
        text = f"{len(done):,} of {len(verdicts):,} {ACTIONS[verb].past}"
        say(f"{text}; {_counted(refused, verb)}" if len(refused) > MAX_LISTED_REFUSALS else text)


def _counted(refused: Sequence[Verdict], verb: Verb) -> str:
    """Return many refusals in one line: how many for which reason, most first."""
    reasons = Counter(verdict.why for verdict in refused).most_common()
    counts = ", ".join(f"{count:,} {why}" for why, count in reasons)
    return f"cannot {_words(verb)} {len(refused):,}: {counts} (--json names each)"


# -- the commands

_OPTIONS: dict[str, dict[str, Any]] = {
    "delay": {"type": duration, "metavar": "DURATION", "help": "Start no sooner than this from now."},
    "until": {"type": when, "metavar": "TIME", "help": "A moment, or how long from now: 2h."},
    "queue": {"metavar": "QUEUE", "help": "The queue to move them to."},
    "priority": {"type": to_priority, "metavar": PRIORITY, "help": "The new priority."},
}
"""How the fields of actions are given. One that is needed is ``--to``, any other has its own name."""


def _command(kind: type[Action], body: Callable[..., int], *options: Callable[[F], F]) -> click.Command:
    """Return the command of an action: it takes ids or filters, and these options."""
    fn: Any = common(body)
    for option in reversed(options):
        fn = option(fn)
    fn = click.option("--yes", "-y", is_flag=True, help="Do not ask before acting on what the filters find.")(fn)
    fn = click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=known("job"))(filters(fn))
    return click.command(kind.word(), help=body.__doc__ or kind.__doc__)(fn)


def _plain(kind: type[Action]) -> click.Command:
    """Return the command of an action with its fields as options."""

    def body(state: State, ids: tuple[str, ...], yes: bool, **given: Any) -> int:
        fields = {field.name: given.pop(f"to_{field.name}") for field in msgspec.structs.fields(kind)}
        return act(state, kind(**fields), ids, yes, given)

    def option(field: msgspec.structs.FieldInfo) -> Callable[[F], F]:
        how = {"required": True} if field.required else {"default": field.default}
        name = "--to" if field.required else f"--{field.name}"
        return click.option(name, f"to_{field.name}", **how, **_OPTIONS.get(field.name, {"type": value}))

    return _command(kind, body, *map(option, msgspec.structs.fields(kind)))


def _rerun(
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
    from headrace.client.api.actions import AnyRerun

    whole = None if payload is None else read_payload(payload, ())
    asked = {"queue": to_queue, "priority": priority, "delay": delay}
    options: Any = {name: value for name, value in asked.items() if value is not None}
    return act(state, AnyRerun(payload=whole, arguments=pairs(arguments), given=options), ids, yes, chosen)


def _resolve(
    state: State, ids: tuple[str, ...], yes: bool, result: str | None, error: str | None, **chosen: Any
) -> int:
    """Set the outcome of jobs by hand: completed with --result, or failed with --error; they do not run any more."""
    if (result is None) == (error is None):
        raise click.UsageError(
            "say how they end: --result JSON (null, if they have none) or --error TEXT, one of the two"
        )
    return act(state, ResolveAction(result=None if result is None else value(result), error=error), ids, yes, chosen)


_SPECIAL = {
    Verb.RERUN: _command(
        RerunAction,
        _rerun,
        click.option("--payload", metavar="JSON|@FILE|-", help="Another payload, whole."),
        click.option(
            "--arg",
            "arguments",
            multiple=True,
            metavar="KEY=VALUE",
            help="Another value of one argument; may be given several times.",
        ),
        click.option("--to", "to_queue", metavar="QUEUE", shell_complete=known("queue"), help="Another queue."),
        click.option("--priority", **_OPTIONS["priority"] | {"help": "Another priority."}),
        click.option("--delay", **_OPTIONS["delay"]),
    ),
    Verb.RESOLVE: _command(
        ResolveAction,
        _resolve,
        click.option(
            "--result", metavar="JSON", help="Complete them with this, which may be null; it is text if it is no JSON."
        ),
        click.option("--error", metavar="TEXT", help="Fail them with this error instead."),
    ),
}
"""Two take more than their fields: some of the arguments; a result that may be null."""

COMMANDS = {kind.word(): _SPECIAL.get(verb) or _plain(kind) for verb, kind in ACTIONS.items()}
