"""Every error headrace raises, each carrying the value that caused it.

HeadraceError
├ ConfigError (ValueError)
│ ├ MissingExtra
│ ├ NotSupported
│ └ TooManyProfiles
├ NotOpen, SyncInAsync, NoContext, NotBound (RuntimeError)
├ UnknownTask, UnknownSchedule, UnknownSetting, UnknownWorker, UnknownKey (LookupError)
├ DuplicateTask, KeyTaken (ConfigError), NotGranted
├ InvalidPayload (ValueError), PayloadTooLarge (InvalidPayload), InvalidResult (ValueError)
├ Duplicate, KeyReused
├ JobNotFound (LookupError), NotCommitted (JobNotFound), ResultTimeout (TimeoutError)
├ JobFailed, JobCancelled, StreamRestarted, BatchFailed (ExceptionGroup)
├ TransitionRefused, Stale, Stopped, HandlerFailed
├ EngineError
│ ├ Unavailable (ConnectionError)
│ │ ├ SecretMismatch
│ │ └ StoreLost
│ ├ Overloaded
│ ├ Unstorable
│ ├ Unreadable
│ ├ SchemaTooNew
│ └ SchemaTooOld
└ Directive: raised by handlers to steer their own job
  ├ Snooze
  ├ RetryLater
  └ GiveUp
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

if TYPE_CHECKING:
    from headrace.core.attempt import ErrorInfo, Failed
    from headrace.core.job import Job

__all__ = [
    "BatchFailed",
    "ConfigError",
    "Directive",
    "Duplicate",
    "DuplicateTask",
    "EngineError",
    "GiveUp",
    "HandlerFailed",
    "HeadraceError",
    "InvalidPayload",
    "InvalidResult",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "KeyReused",
    "KeyTaken",
    "MissingExtra",
    "NoContext",
    "NotBound",
    "NotCommitted",
    "NotGranted",
    "NotOpen",
    "NotSupported",
    "Overloaded",
    "PayloadTooLarge",
    "ResultTimeout",
    "RetryLater",
    "SchemaTooNew",
    "SchemaTooOld",
    "SecretMismatch",
    "Snooze",
    "Stale",
    "Stopped",
    "StoreLost",
    "StreamRestarted",
    "SyncInAsync",
    "TooManyProfiles",
    "TransitionRefused",
    "Unavailable",
    "UnknownKey",
    "UnknownSchedule",
    "UnknownSetting",
    "UnknownTask",
    "UnknownWorker",
    "Unreadable",
    "Unstorable",
]


class HeadraceError(Exception):
    """The root of every error headrace raises."""


class ConfigError(HeadraceError, ValueError):
    """A setting, URL or option that cannot be used; the message names it and the remedy."""

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """What of a document cannot be used, as a path, where that is known."""


class MissingExtra(ConfigError):
    """A library behind an optional extra is not installed."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f'{what} needs {library}: pip install "headrace[{extra}]"')
        self.what, self.library, self.extra = what, library, extra


class NotSupported(ConfigError):
    """The engine, or this kind of handler, cannot do that."""


class TooManyProfiles(ConfigError):
    """A job of yet another pair of task and requirements, where too many have live jobs already."""


class NotOpen(HeadraceError, RuntimeError):
    """The App is not open on this event loop."""


class SyncInAsync(HeadraceError, RuntimeError):
    """A blocking call was made on a thread with a running event loop."""


class NoContext(HeadraceError, RuntimeError):
    """``Context.current()`` was called outside a handler."""


class NotBound(HeadraceError, RuntimeError):
    """A task of a ``Tasks`` collection was submitted before an App included it."""


class UnknownTask(HeadraceError, LookupError):
    """No task of this name is registered here."""

    def __init__(self, name: str, message: str | None = None) -> None:
        super().__init__(message or f"no task named {name!r} is registered in this App")
        self.name = name


class UnknownSchedule(HeadraceError, LookupError):
    """No schedule of this name is stored."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule named {name!r}")
        self.name = name


class UnknownSetting(HeadraceError, LookupError):
    """Nothing is stored about a queue, about the limits of a task, or about a rate of this name."""

    def __init__(self, of: Literal["queue", "task", "rate"], name: str) -> None:
        what = "limits of a task" if of == "task" else f"a {of}"
        group = "limits" if of == "task" else f"{of}s"
        super().__init__(f"nothing is stored about {what} named {name!r}: headrace {group} lists what is")
        self.of, self.name = of, name


class UnknownWebhook(HeadraceError, LookupError):
    """There is no webhook of this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no webhook {shown(id)}: headrace webhooks lists the subscriptions")
        self.id = id


class UnknownWorker(HeadraceError, LookupError):
    """The store knows no worker of this id."""

    def __init__(self, id: UUID, message: str | None = None) -> None:
        super().__init__(message or f"no worker {id}: headrace workers lists those that the store knows")
        self.id = id


class UnknownKey(HeadraceError, LookupError):
    """No key of the hub has this name or prefix."""

    def __init__(self, name: str) -> None:
        # A caller that gives the key itself should not find it in a log.
        self.name = f"{name[:11]}…" if name.startswith("hr_") and len(name) > 11 else name
        super().__init__(f"no key named {self.name!r}: headrace keys list lists them, also by prefix")


class KeyTaken(ConfigError):
    """A key of the hub has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a key named {name!r}: choose another name, or revoke that one first")
        self.name = name


class NotGranted(HeadraceError):
    """A key would have more than its maker has."""


class DuplicateTask(ConfigError):
    """Two functions were registered under one task name."""


class InvalidPayload(HeadraceError, ValueError):
    """The arguments do not fit the task's signature."""

    def __init__(self, task: str, message: str, field: str | None = None) -> None:
        where = f"{task}: {field}: " if field else f"{task}: "
        super().__init__(where + message)
        self.task, self.field = task, field


class PayloadTooLarge(InvalidPayload):
    """The encoded payload is over the size limit."""


class InvalidResult(HeadraceError, ValueError):
    """What the handler returned is not JSON or is too large."""


class Duplicate(HeadraceError):
    """A live job holds the dedup key; ``job`` is that job."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"dedup key {job.dedup!r} of task {job.task!r} is held by job {job.id} ({job.status})")
        self.job = job


class KeyReused(HeadraceError):
    """A request key was used again with another payload; ``job`` is the first one."""

    def __init__(self, job: Job) -> None:
        super().__init__(
            f"request key {job.request_key!r} of task {job.task!r} was used before with another payload, for job"
            f" {job.id} ({job.status}): give a new request a key of its own, or repeat the first one as it was"
        )
        self.job = job


class JobNotFound(HeadraceError, LookupError):
    """No job has this id (never accepted, or pruned after its retention)."""

    def __init__(self, id: UUID, message: str | None = None) -> None:
        super().__init__(message or f"no job {id}: never accepted here, or pruned after its retention")
        self.id = id


class NotCommitted(JobNotFound):
    """The job was submitted within a transaction that is not committed: until then there is no such job."""

    def __init__(self, id: UUID) -> None:
        super().__init__(
            id,
            f"no job {id} yet: it was submitted within a transaction that is still open or was rolled back; commit,"
            " and then wait for it",
        )


class ResultTimeout(HeadraceError, TimeoutError):
    """The job did not end in the time the caller was willing to wait; the job itself goes on."""

    def __init__(self, id: UUID, seconds: float, what: str = "job") -> None:
        super().__init__(f"{what} {id} did not end within {seconds:g} s (it goes on)")
        self.id, self.seconds = id, seconds


class JobFailed(HeadraceError):
    """The awaited job ended ``failed``."""

    def __init__(self, job: Job, error: ErrorInfo | None) -> None:
        detail = f": {error.type}: {error.message}" if error else ""
        super().__init__(f"job {job.id} of task {job.task!r} failed ({_words(job.reason)}){detail}")
        self.job, self.error = job, error


class JobCancelled(HeadraceError):
    """The awaited job ended ``cancelled``."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"job {job.id} of task {job.task!r} was cancelled ({_words(job.reason)})")
        self.job = job


class BatchFailed(ExceptionGroup[JobFailed | JobCancelled], HeadraceError):
    """Jobs of an awaited batch did not complete: one ``JobFailed`` or ``JobCancelled`` for each."""

    def derive(self, excs: Sequence[Any], /) -> BatchFailed:  # type: ignore[override]
        """What ``split`` and ``except*`` make of a part of it."""
        return BatchFailed(self.message, excs)


class StreamRestarted(HeadraceError):
    """A new attempt began the stream anew; what was read so far came from an attempt that does not count."""

    def __init__(self, id: UUID, attempt: int) -> None:
        super().__init__(
            f"the stream of job {id} began anew with attempt {attempt}: drop what was read and read it again, or use"
            " items(), which marks where that happens"
        )
        self.id, self.attempt = id, attempt


class TransitionRefused(HeadraceError):
    """The lifecycle has no such transition from the job's status."""

    def __init__(self, job: Job, verb: str, why: str | None = None) -> None:
        reason = f" ({_words(job.reason)})" if job.reason else ""
        action = f"run job {job.id} now" if verb == "run_now" else f"{verb} job {job.id}"
        super().__init__(f"cannot {action}: " + (why or f"it is {job.status}{reason}"))
        self.job, self.verb = job, verb


class Stale(HeadraceError):
    """Another worker owns the job now; the result of this one was dropped."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"job {job.id} is no longer held here (epoch {job.epoch}, {job.status})")
        self.job = job


class Stopped(HeadraceError):
    """Raised by ``ctx.check()`` when the handler should stop."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the handler was asked to stop: {why}")
        self.why = why


class HandlerFailed(HeadraceError):
    """A middleware gets this when a handler in a child process failed; ``error`` is the error of the child."""

    def __init__(self, ending: Failed, error: ErrorInfo | None) -> None:
        super().__init__(f"{error.type}: {error.message}" if error else "the handler failed")
        self.ending, self.error = ending, error


class EngineError(HeadraceError):
    """The store replied with an error."""


class Unavailable(EngineError, ConnectionError):
    """The store could not be reached; ``outcome`` says whether the write may have happened."""

    def __init__(
        self, message: str, *, outcome: Literal["refused", "unknown"] = "refused", ids: Sequence[UUID] = ()
    ) -> None:
        super().__init__(message)
        self.outcome, self.ids = outcome, tuple(ids)


class StoreLost(Unavailable):
    """The store was deleted, replaced or damaged while it was open: nothing is stored until it is opened anew."""


class SecretMismatch(Unavailable):
    """This process cannot sign: it has another ``HEADRACE_SECRET`` than the store's hubs, or none."""


class Overloaded(EngineError):
    """Too much waits for the store: submits for 30 s, or what workers sent to a hub; nothing was stored."""


class Unstorable(EngineError):
    """The store refuses this row's data, and nothing of it was stored; other rows of the batch are not concerned."""

    outcome: Literal["refused"] = "refused"
    """As of ``Unavailable``."""

    def __init__(self, message: str, *, ids: Sequence[UUID] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)


class Unreadable(EngineError):
    """A job is stored in a way that this version cannot read; other jobs are not concerned."""

    def __init__(self, id: UUID, why: object) -> None:
        super().__init__(f"job {id} is stored in a way that cannot be read: {why}; is there a newer headrace?")
        self.id = id


class SchemaTooNew(EngineError):
    """The database was migrated by a newer headrace."""


class SchemaTooOld(EngineError):
    """The database needs a migration before this version can use it."""


class Directive(HeadraceError):
    """Raised by a handler to steer its own job."""


MAX_DURATION_SECONDS = 100 * 365.25 * 86400
"""Seconds; no duration is longer, so that no moment is beyond the calendar."""


_MAX_SHOWN_CHARACTERS = 300
"""Characters of a value that an error shows."""


def shown(value: object) -> str:
    """A value as an error shows it, whatever it is: Python refuses to spell out a number of more than 4,300 digits, and
    what is too deep; and no error repeats all that was sent."""
    if isinstance(value, int) and abs(value) > 10**30:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]} …"


def _words(reason: object) -> str:
    """A reason as people read it, here as on every screen."""
    return str(reason).replace("_", " ")


def _seconds(delay: float | timedelta) -> float:
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    # Compared before it is made a float: a whole number may be greater than any.
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= MAX_DURATION_SECONDS:
        limits = "seconds or a timedelta, not negative and at most a century"
        raise ConfigError(f"delay must be {limits}, not {shown(delay)}")
    return float(delay)


class Snooze(Directive):
    """Run the job again after ``delay``; this attempt is not charged."""

    def __init__(self, delay: float | timedelta) -> None:
        self.delay = _seconds(delay)
        super().__init__(f"snoozed for {self.delay:g} s")


class RetryLater(Directive):
    """Fail this attempt, charged; the next one comes after ``delay`` instead of the backoff."""

    def __init__(self, delay: float | timedelta, message: str = "retry later") -> None:
        self.delay = _seconds(delay)
        super().__init__(message)


class GiveUp(Directive):
    """End the job ``failed`` now, without further attempts."""

    def __init__(self, message: str = "gave up", **details: Any) -> None:
        super().__init__(message)
        self.details = details
