"""What commands take: flags that all or several share, kinds of values, and the arguments of a task.

Arguments of a task are typed as ``key=value`` pairs or as ``--payload``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import click

from headrace.cli.completion import known
from headrace.cli.exit_codes import USAGE
from headrace.core import times
from headrace.core.priority import checked_priority
from headrace.core.status import COMING, Reason, Status
from headrace.core.words import VOCABULARIES, Vocabulary
from headrace.errors import ConfigError

__all__ = [
    "PRIORITY",
    "Address",
    "BadAddress",
    "State",
    "address",
    "common",
    "duration",
    "filters",
    "in_words",
    "moment",
    "pairs",
    "payload",
    "priority",
    "statuses",
    "target",
    "value",
    "vocabulary",
    "when",
    "words",
]


def value(text: str) -> Any:
    """Return the value of JSON if it parses, else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def pairs(words: Sequence[str]) -> dict[str, Any]:
    """Return ``key=value`` words as a dictionary."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{word!r} is not key=value")
        if key in found:
            raise click.UsageError(f"{key} is given twice")
        found[key] = value(text)
    return found


def words(given: Iterable[str]) -> list[str]:
    """Return the words of options that take several, with commas between them."""
    return [word.strip() for one in given for word in one.split(",") if word.strip()]


def payload(source: str | None, words: Sequence[str]) -> dict[str, Any]:
    """Return the whole payload: ``source`` is JSON, @file or - for stdin; pairs are laid over it."""
    return (_whole(source) if source is not None else {}) | pairs(words)


def _whole(source: str) -> dict[str, Any]:
    text, name = _read(source)
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise click.UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"{name} must be a JSON object keyed by parameter name")
    return found


def _read(source: str) -> tuple[str, str]:
    try:
        if source == "-":
            return sys.stdin.read(), "stdin"
        if source.startswith("@"):
            return Path(source[1:]).read_text(encoding="utf-8"), source[1:]
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {source.removeprefix('@')}: {error}") from None
    return source, "--payload"


def _no_constant(name: str) -> NoReturn:
    # Python's parser takes NaN and Infinity, which are no JSON: `x=NaN` is the text "NaN".
    raise ValueError(f"{name} is not JSON")


def _debug() -> bool:
    return os.environ.get("HEADRACE_DEBUG", "") not in ("", "0")


@dataclass
class State:
    """The shared flags of one command line; None is unset, so that settings apply."""

    url: str | None = None
    app: str | None = None
    json: bool = False
    debug: bool = field(default_factory=_debug)
    log_format: str = "text"
    """The form of lines on stderr, errors included; that of a worker is also in the settings."""
    words: str = "headrace"
    """The vocabulary for statuses."""


F = TypeVar("F", bound=Callable[..., Any])


def duration(value: str | float) -> float:
    """Return a length of time in seconds, from seconds or numbers with units (90, 250ms, 60s, 1h30m)."""
    try:
        return times.duration(value) if isinstance(value, str) else float(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


PRIORITY = "0-100|NAME"
"""How a priority is given."""


def priority(value: str | int) -> int:
    """Return a priority, from a number or the name of a band (system, high, normal, low)."""
    try:
        return checked_priority(int(value) if isinstance(value, int) or value.lstrip("-").isdecimal() else value, "it")
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def moment(value: str) -> datetime:
    """Return an ISO date and time; without an offset it is local time."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a moment: say 2026-01-31T08:00 or 2026-01-31T08:00+01:00") from None
    try:
        return found if found.tzinfo else found.astimezone()
    except (OverflowError, ValueError, OSError):  # at the ends of the calendar there is no local time
        raise click.BadParameter(f"{value!r} is not a moment that has a local time: say it with an offset") from None


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep a shared flag that is given: so `headrace --json jobs` equals `headrace jobs --json`."""
    if value not in (None, False):
        setattr(ctx.ensure_object(State), str(param.name), value)


def _shared(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, callback=_note, expose_value=False, **attributes)


def target(fn: F) -> F:
    """Add the shared flags; their values are in the State."""
    # click lists options in the reverse order of their application.
    fn = _shared("--debug", is_flag=True, help="Show tracebacks (also HEADRACE_DEBUG=1).")(fn)
    fn = _shared("--json", is_flag=True, help="Print JSON: one document, or one per line when following.")(fn)
    fn = _shared("--app", metavar="MODULE[:APP]", help="The App to use (else HEADRACE_APP or headrace.toml).")(fn)
    return _shared("--url", metavar="URL", help="The store to use (else the App's, HEADRACE_URL, headrace.toml).")(fn)


def in_words(fn: F) -> F:
    """Add the flag that chooses the words for statuses; ``vocabulary`` returns them."""
    kind, text = click.Choice(list(VOCABULARIES)), "The words for statuses, of this or of another design."
    return _shared("--words", type=kind, is_eager=True, help=text)(fn)  # eager: before --status is read


def vocabulary(ctx: click.Context | None = None) -> Vocabulary:
    """Return the words for statuses of the command of this context; left out, of the one that is running."""
    ctx = ctx or click.get_current_context(silent=True)
    state = None if ctx is None else ctx.find_object(State)
    return VOCABULARIES["headrace" if state is None else state.words]


def common(fn: Callable[..., int | None]) -> Callable[..., int | None]:
    """Make a function a command's body: it takes the State first and returns the exit code."""

    @wraps(fn)
    def body(*args: Any, **kwargs: Any) -> int | None:
        return fn(click.get_current_context().ensure_object(State), *args, **kwargs)

    return target(body)


def when(value: str | datetime | float) -> datetime | float:
    """Return a moment, from an ISO date and time, or from how long ago or from now, in seconds."""
    if not isinstance(value, str):
        return value
    try:
        return times.duration(value)
    except ValueError as error:
        if value.startswith("-") and _is_duration(value[1:]):
            raise click.BadParameter(f"{value!r} has a sign: say {value[1:]}, which is a length of time") from None
        if _is_duration(value):
            raise click.BadParameter(str(error)) from None
    try:
        return moment(value)
    except click.BadParameter as error:
        # For what looks like a moment, the error is that of a moment.
        if "local time" in error.message:
            raise
        raise click.BadParameter(
            f"{value!r} is neither a moment nor a length of time: say 2026-01-31T08:00 or 2h"
        ) from None


def _is_duration(text: str) -> bool:
    """Return whether this is meant as a length of time, whatever its length."""
    return re.fullmatch(rf"\s*([\d.]+\s*({'|'.join(times.UNITS)})?\s*)+", text.lower()) is not None


_COME = [status for status in Status if status not in COMING]


def statuses(*names: str, help: str) -> Callable[[F], F]:
    """Add a flag for statuses, in the words that the command line chooses and in any case."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return [word for word in _status_words(vocabulary(ctx)) if word.casefold().startswith(incomplete.casefold())]

    return click.option(*names, multiple=True, type=_status_word, metavar="STATUS", help=help, shell_complete=complete)


def _status_word(value: str) -> str:
    """Return a word for a status; refuse one that is none."""
    known = _status_words(vocabulary())
    if value.casefold() not in map(str.casefold, known):
        raise click.BadParameter(f"{value!r} is not one of {', '.join(map(repr, known))}.")
    return value


def _status_words(known: Vocabulary) -> list[str]:
    return [word for word in known.words() if not COMING.issuperset(known.statuses([word])[0])]


def filters(fn: F) -> F:
    """Add the flags that choose jobs."""
    for option in (
        _time("--finished-until", "finished_before", "Jobs that ended before this."),
        _time("--finished-since", "finished_after", "Jobs that ended since then."),
        _time("--until", "created_before", "Jobs that were submitted before this."),
        _time("--since", "created_after", "Jobs that were submitted since then: 2h, or 2026-01-31T08:00."),
        click.option("--suspect", is_flag=True, help="Jobs that may have killed their worker."),
        click.option("--text", metavar="TEXT", help="Found in the id, the task, the payload or the error."),
        click.option(
            "--rerun-of", metavar="ID", shell_complete=known("job"), help="Jobs that do the work of this one again."
        ),
        click.option(
            "--batch",
            metavar="ID",
            shell_complete=known("batch"),
            help="Jobs of this batch; the id of one of them will do.",
        ),
        click.option("--root", metavar="ID", shell_complete=known("job"), help="All descendants of this job."),
        click.option(
            "--parent", metavar="ID", shell_complete=known("job"), help="Jobs that the handler of this job submitted."
        ),
        click.option(
            "--schedule", metavar="NAME", shell_complete=known("schedule"), help="Jobs that this schedule submitted."
        ),
        click.option("--tag", metavar="TAG", help="Jobs with this tag."),
        _several(
            "--fingerprint", "Jobs whose error has this fingerprint (headrace failures); its first digits will do."
        ),
        _several("--worker", "Jobs that this worker has now.", metavar="ID", shell_complete=known("worker")),
        _several("--customer", "Jobs of this customer."),
        _several("--queue", "Jobs of this queue.", shell_complete=known("queue")),
        _several("--task", "Jobs of this task.", shell_complete=known("task")),
        in_words,
        _several(
            "--reason",
            f"Jobs that failed or were cancelled for this reason ({', '.join(Reason)}).",
            type=click.Choice([reason.value for reason in Reason]),
        ),
        statuses("--status", help=f"Jobs in this status ({', '.join(_COME)})."),
    ):
        fn = option(fn)
    return fn


def _several(name: str, help: str, **attributes: Any) -> Callable[[F], F]:
    metavar = name.removeprefix("--").upper()
    return click.option(name, multiple=True, help=help, **{"metavar": metavar} | attributes)


def _time(name: str, field: str, help: str) -> Callable[[F], F]:
    return click.option(name, field, type=when, metavar="WHEN", help=help)


class Address(NamedTuple):
    """An address to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(value: str | Address) -> Address:
    """Return the address that HOST:PORT, :PORT or PORT names."""
    if isinstance(value, Address):
        return value
    host, _, port = value.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


class BadAddress(click.ClickException):
    """This process cannot listen there."""

    exit_code = USAGE
