"""The options of a job: checked where they are written, merged where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from string import Formatter
from typing import Any, Literal, Protocol, TypedDict, get_args
from uuid import UUID

import msgspec

from headrace.core import validation
from headrace.core.codec.value import document_text
from headrace.core.defaults import MAX_AFTER_JOBS, MIN_HEARTBEAT_SECONDS
from headrace.core.job import AfterWhen, OnDuplicate, OnParentFailure, Pairs, Values
from headrace.core.lifecycle.retention import Kept
from headrace.core.lifecycle.retry import Backoff, Retry
from headrace.core.lifecycle.suspects import REQUIREMENT
from headrace.core.matching import customers
from headrace.core.matching.match import fault_of
from headrace.core.priority import PriorityBand, checked_priority
from headrace.core.schedule.rules import Continuous, Cron, Every
from headrace.core.times import Seconds, seconds
from headrace.core.times import moment as text_of
from headrace.core.webhooks.subscription import checked_wish
from headrace.errors import ConfigError, shown
from headrace.worker.execution.hooks import Callback, Middleware

__all__ = [
    "ONE_SUBMIT",
    "TEMPLATES",
    "HasId",
    "JobOptions",
    "TaskOptions",
    "check_key",
    "check_options",
    "check_templates",
    "fill_templates",
    "merged",
    "refuse_function",
]


class HasId(Protocol):
    """A draft, a handle or a record of a job."""

    @property
    def id(self) -> UUID:
        """The job's id."""
        ...


class JobOptions(TypedDict, total=False):
    """The options of a job: at submit, in ``task.options(...)``, and as a default of a task or an App."""

    queue: str
    """The queue of the job; ``default`` if left out."""
    priority: int | PriorityBand
    """0 to 100, higher first, or a name: ``"system"`` is 95, ``"high"`` 80, ``"normal"`` 50, ``"low"`` 15. If call,
    task and App name none: that of the job whose handler submits it, else 50."""
    retry: Retry
    """The retry policy; replaced as a whole."""
    timeout: Seconds | None
    """How long one attempt may take; 30 minutes if left out, None: no limit."""
    heartbeat: Seconds | None
    """A handler that reports nothing for this long has timed out: no progress, line of the log, item, step or
    ``ctx.heartbeat()``. None (default): it need not report."""
    remote_heartbeat: Seconds | None
    """The same for workers behind a hub alone, where ``heartbeat`` is left out."""
    retention: Seconds | Mapping[Literal["completed", "failed", "cancelled"], Seconds]
    """How long the job is kept after its end, or by how it ended; as the settings say if left out."""
    delay: Seconds
    """Start no sooner than this long after the submit; excludes ``not_before``."""
    not_before: datetime | None
    """Start no sooner than this moment; excludes ``delay``."""
    not_after: datetime | None
    """Cancelled as ``expired`` if it has not started by this moment."""
    dedup: str | None
    """At most one live job of the task holds this key. As an option of the task, a template of its parameters."""
    dedup_for: Seconds | None
    """Hold the dedup key for this long after the submit, also if the job has completed by then; one that fails or is
    cancelled lets go at once. None (default): while the job is live."""
    on_duplicate: OnDuplicate
    """When the dedup key is held: return the handle of the holder (default), raise ``Duplicate``, or ``replace`` what
    the holder is to do; one that runs already lets go of the key, and a new job is stored."""
    request_key: str | None
    """Names one request, of one customer to one task: a submit with the same key returns the job of the first one until
    that is pruned, and raises ``KeyReused`` if its payload is another. For one submit, not for a task."""
    tags: Sequence[str]
    """Labels to find it by."""
    metadata: Mapping[str, Any]
    """JSON values kept with the job, for people and programs to read."""
    requires: Mapping[str, Any]
    """What a worker must offer to be given the job, by name; a number is a minimum. See the guide on workers."""
    customer: str | None
    """The customer for whom it runs."""
    concurrency_key: str | None
    """At most ``max_per_key`` jobs of the task with the same key are held at once, and keys take turns. As an option of
    the task, a template of its parameters."""
    after: Sequence[HasId | UUID | str]
    """The jobs to wait for: drafts, handles or ids, at most 1,000. Submit drafts before it, or together with it."""
    after_when: AfterWhen
    """``succeeded`` (default): run when all of them completed. ``ended``: run when all of them ended, however."""
    on_parent_failure: OnParentFailure
    """When one that had to succeed did not: ``cancel`` the job (default), or ``fail`` it."""
    derived_id: bool
    """For jobs that a handler submits. True (default): the id is computed from the handler's job and the call (task,
    arguments, number among equal calls), so that a later attempt finds the job and does not submit it again."""
    webhook: str | Mapping[str, Any]
    """The address to notify of the job: a URL, or a mapping with ``url`` and, if wanted, ``events``, ``secret``,
    ``bearer`` and ``words``. For one submit, not for a task; ``app.webhooks.add`` subscribes to many jobs."""
    headers: Mapping[str, str | Sequence[str]]
    """Headers of the HTTP request for the job, kept with it; one that is given more than once is a list. For one
    submit, like ``route`` and ``query``."""
    route: Mapping[str, Any]
    """The parameters in the path of that request, by name."""
    query: Sequence[tuple[str, str]] | Mapping[str, str | Sequence[str]]
    """The parameters in the query of that request, as pairs of name and value in their order; or by name, and one that
    is given more than once is a list."""
    trace: Mapping[str, str]
    """The trace of the job, as W3C headers such as ``traceparent``; if left out, that of the job that submits it."""
    connection: Any
    """A connection with an open transaction: the job exists only if that transaction is committed."""


class TaskOptions(JobOptions, total=False):
    """The options of ``@app.task``, besides those of a job."""

    name: str
    """The task's name; the function's own if left out."""
    aliases: Sequence[str]
    """Earlier names, under which stored jobs may still wait."""
    run_in: Literal["process"]
    """Run the plain function in a process of its own instead of a thread."""
    schedule: Cron | Every
    """The schedule that submits jobs of the task."""
    max_concurrency: int
    """Concurrency limit: how many of its jobs all workers together hold at once."""
    max_per_key: int
    """Concurrency limit of each ``concurrency_key``; 1 if there is a key and this is left out."""
    rates: Sequence[str]
    """Its rate limits, by name: see ``app.rate``."""
    continuous: Continuous
    """Run it all the time: when a run ends, the next begins, with this many instances in all workers together."""
    middleware: Sequence[Middleware]
    """Called around its runs, inside those of ``@app.middleware``; the first is the outermost."""
    on_success: Callback | Sequence[Callback]
    """Called with the job when it completed."""
    on_retry: Callback | Sequence[Callback]
    """Called with the job when an attempt failed and another will be made."""
    on_failed: Callback | Sequence[Callback]
    """Called with the job when its last attempt failed."""
    on_cancelled: Callback | Sequence[Callback]
    """Called with the job when a worker stopped it on request."""


ONE_SUBMIT = ("connection", "request_key", "webhook", "headers", "route", "query")
"""Options of one submit: they cannot be said for a task, or for many."""

TEMPLATES = {"dedup": "dedup_template", "concurrency_key": "concurrency_key_template"}
"""Keys that may be templates of the parameters, and where a template is kept among checked options."""


def _retry(value: Any, name: str) -> Retry:
    if not isinstance(value, Retry):
        raise ConfigError(f"{name} must be a Retry, as in Retry(max_retries=5), not {shown(value)}")
    return value


def _span(zero: str) -> Callable[[Any, str], float | None]:
    def check(value: Any, name: str) -> float | None:
        number = None if value is None else seconds(value, name)
        if number == 0:
            raise ConfigError(f"{name} must be longer than 0; {zero}")
        return number

    return check


def _heartbeat(value: Any, name: str) -> float | None:
    number = None if value is None else seconds(value, name)
    if number is not None and number < MIN_HEARTBEAT_SECONDS:
        raise ConfigError(f"{name} must be {MIN_HEARTBEAT_SECONDS:g} s or longer; None means that no sign is needed")
    return number


def _retention(value: Any, name: str) -> Kept:
    statuses = Kept.__struct_fields__
    if not isinstance(value, Mapping):
        return Kept(**dict.fromkeys(statuses, seconds(value, name)))
    if unknown := [one for one in value if one not in statuses]:
        raise ConfigError(f"{name} is said for {', '.join(statuses)}, not for {unknown[0]!r}")
    return Kept(**{validation.plain(one): seconds(span, f"{name} of {one}") for one, span in value.items()})


def _tags(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        raise ConfigError(f"{name} must be a sequence of strings, not {shown(value)}")
    return validation.checked_tags(value, name)


def _after(value: Any, name: str) -> tuple[UUID, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigError(f"{name} must be a sequence of drafts, handles or ids, not {shown(value)}")
    ids = tuple(dict.fromkeys(_id_of(one, f"each of {name}") for one in value))
    if len(ids) > MAX_AFTER_JOBS:
        raise ConfigError(f"{name} names {len(ids)} jobs; at most {MAX_AFTER_JOBS} can be waited for: use a batch")
    return ids


def _id_of(value: Any, name: str) -> UUID:
    try:
        id = getattr(value, "id", value)
        return (
            validation.plain_id(id)
            if isinstance(id, UUID)
            else UUID(validation.plain(id) if isinstance(id, str) else "")
        )
    except Exception:  # also one of the value's own
        raise ConfigError(f"{name} must be a draft, a handle or an id, not {shown(value)}") from None


def _one_of(*words: str) -> Callable[[Any, str], str]:
    def check(value: Any, name: str) -> str:
        # Only a text is compared: what else says that it equals something may fail at that.
        word = validation.plain(value) if isinstance(value, str) else ""
        if word not in words:
            raise ConfigError(f"{name} must be {' or '.join(map(repr, words))}, not {shown(value)}")
        return word

    return check


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {shown(value)}")
    return value


def _headers(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ConfigError(f"{name} must be a mapping of text to text, not {shown(value)}")
    return _json(value, name)


def _values(value: Any, name: str) -> Values:
    said = "a mapping of names to a text or a list of texts"
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be {said}, not {shown(value)}")
    found = {key: (one,) if isinstance(one, str) else one for key, one in value.items()}
    for key, texts in found.items():
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in (key, *texts)):
            raise ConfigError(f"{name} must be {said}, not {shown(value)}")
    return {key: tuple(texts) for key, texts in _json(found, name).items()}


def _pairs(value: Any, name: str) -> Pairs:
    if isinstance(value, Mapping):
        return tuple((key, text) for key, texts in _values(value, name).items() for text in texts)
    pairs = list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [None]
    for one in pairs:
        if not isinstance(one, Sequence) or len(one) != 2 or not all(isinstance(text, str) for text in one):
            raise ConfigError(f"{name} must be pairs of a name and a text, or a mapping of these, not {shown(value)}")
    return tuple((key, text) for key, text in _json({name: pairs}, name)[name])


def _json(value: Any, name: str) -> dict[str, Any]:
    # Decoded: plain values, as every store has them, and none that the caller may go on to change.
    found: dict[str, Any] = msgspec.json.decode(document_text(value, name))
    return found


def _maybe(check: Callable[[Any, str], str]) -> Callable[[Any, str], str | None]:
    return lambda value, name: None if value is None else check(value, name)


def _requires(value: Any, name: str) -> dict[str, Any]:
    plain = _json(value, name)
    if REQUIREMENT in plain:
        raise ConfigError(f"{name} must not name {REQUIREMENT!r}: headrace keeps that for jobs whose worker died")
    if customers.REQUIREMENT in plain:
        raise ConfigError(f"{name} must not name {customers.REQUIREMENT!r}: say customer= instead")
    if (fault := fault_of(plain)) is not None:
        raise ConfigError(f"{name}: {fault}")
    return plain


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "queue": validation.checked_name,
    "priority": checked_priority,
    "retry": _retry,
    "timeout": _span("None means no limit"),
    "heartbeat": _heartbeat,
    "remote_heartbeat": _heartbeat,
    "retention": _retention,
    "delay": seconds,
    "not_before": validation.checked_moment,
    "not_after": validation.checked_moment,
    "dedup": _maybe(validation.checked_key),
    "dedup_for": _span("leave it out to hold the key while the job is live"),
    "on_duplicate": _one_of(*get_args(OnDuplicate)),
    "request_key": _maybe(validation.checked_key),
    "tags": _tags,
    "metadata": _json,
    "requires": _requires,
    "customer": _maybe(validation.checked_key),
    "concurrency_key": _maybe(validation.checked_key),
    "after": _after,
    "after_when": _one_of(*get_args(AfterWhen)),
    "on_parent_failure": _one_of(*get_args(OnParentFailure)),
    "derived_id": _flag,
    "webhook": checked_wish,
    "headers": _values,
    "route": _json,
    "query": _pairs,
    "trace": _headers,
    "connection": lambda value, name: value,
}


def check_options(options: Mapping[str, Any], *, template: bool = False) -> dict[str, Any]:
    """The options in the form they are used in; ``template``: keys are templates of the parameters;
    :raises ConfigError: naming the option"""
    checked: dict[str, Any] = {}
    for name, value in options.items():
        check = _CHECKS.get(name)
        if check is None:
            known = [*_CHECKS, *(TaskOptions.__annotations__ if template else ())]
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(dict.fromkeys(known))}"
            if name in TaskOptions.__annotations__:
                hint = f"it is one of the task: @app.task({name}=…)"
            raise ConfigError(f"unknown option {name!r}; {hint}")
        checked[name] = check(value, name)
    if "delay" in checked and checked.get("not_before") is not None:
        raise ConfigError("delay and not_before exclude each other: give one of them")
    if template:
        for name, place in TEMPLATES.items():
            if checked.get(name) is not None:
                checked[place] = checked.pop(name)
    return checked


def refuse_function(options: Mapping[str, Any], own: Backoff | None = None) -> Mapping[str, Any]:
    """The checked options of a submit; a backoff that is a function is none but the task's ``own``: a function cannot
    be stored with one job, so a worker calls that of the task; :raises ConfigError: it is another one"""
    fn = options["retry"].function if "retry" in options else None
    if fn is not None and fn != own:
        raise ConfigError(
            "retry: a backoff that is a function belongs to the task, whose worker calls it: say it there,"
            " as in @app.task(retry=Retry(backoff=...)), or raise RetryLater(delay) in the handler"
        )
    return options


_PAIRS = [("delay", "not_before"), *TEMPLATES.items()]
_EXCLUSIVE = [*_PAIRS, *((other, mine) for mine, other in _PAIRS)]


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Checked options, later ones over earlier ones; of two that exclude each other the later stays."""
    whole: dict[str, Any] = {}
    for layer in layers:
        for mine, other in _EXCLUSIVE:
            if mine in layer:
                whole.pop(other, None)
        whole |= layer
    not_before, not_after = whole.get("not_before"), whole.get("not_after")
    if not_before is not None and not_after is not None and not_after <= not_before:
        raise ConfigError(
            f"not_after ({text_of(not_after, None)}) must be later than not_before ({text_of(not_before, None)})"
        )
    if whole.get("on_duplicate") == "replace":
        for name in _NOT_REPLACING:
            if whole.get(name):
                raise ConfigError(f'on_duplicate="replace" and {name} exclude each other: {_NOT_REPLACING[name]}')
    return whole


_NOT_REPLACING = {
    "dedup_for": "a job that has completed cannot be replaced, and one that is live holds its key anyway",
    "request_key": "a request makes one job, and what it asked for stays",
    "after": "the job that holds the key keeps what it waits for",
}
"""What cannot be meant together with a replacement, and why."""


def check_key(given: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
    """Refuse options that say more about a dedup key if there is none; ``dedup=None`` says that there is to be none.
    :raises ConfigError:"""
    if "dedup" in whole or TEMPLATES["dedup"] in whole:
        return
    if given.get("dedup_for") is not None:
        raise ConfigError("dedup_for says how long a dedup key is held, and there is no key: give dedup, too")
    if given.get("on_duplicate") == "replace":
        raise ConfigError('on_duplicate="replace" is about the job that holds the dedup key: give dedup, too')


def check_templates(options: Mapping[str, Any], parameters: Sequence[str]) -> None:
    """Refuse templates that name what is no parameter; :raises ConfigError:"""
    for name, place in TEMPLATES.items():
        if place in options:
            _check_template(name, options[place], parameters)


def _check_template(key: str, template: str, parameters: Sequence[str]) -> None:
    """Refuse a template that names what is no parameter; :raises ConfigError:"""
    try:
        names = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise ConfigError(f"{key} is not a template: {template!r} ({error})") from None
    for name in names:
        if name not in parameters:
            there = f"the parameters are {', '.join(parameters)}" if parameters else "it has no parameters"
            raise ConfigError(f"{key} template {template!r} names {name!r}, no parameter of the task; {there}")


def fill_templates(options: Mapping[str, Any], arguments: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The options with the keys of these arguments, which are JSON values, in place of templates;
    :raises ConfigError: a parameter has no value here, or not one the format fits"""
    places = [(name, place) for name, place in TEMPLATES.items() if place in options]
    if not places:
        return options
    values = arguments()
    filled = {name: _fill_template(name, options[place], values) for name, place in places}
    return {**options, **filled}


def _fill_template(key: str, template: str, arguments: Mapping[str, Any]) -> str | None:
    try:
        text = template.format_map(arguments)
    except KeyError as error:
        raise ConfigError(f"{key} template {template!r}: {error.args[0]!r} was not passed and has no default") from None
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise ConfigError(f"{key} template {template!r}: {error}") from None
    try:
        return validation.checked_key(text, key)
    except ConfigError as error:
        raise ConfigError(f"{key} template {template!r}: {error}") from None
