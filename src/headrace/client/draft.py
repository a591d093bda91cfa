"""A job that has not been submitted: its id is made here, so submitting it twice inserts it once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack
from uuid import UUID

from headrace.client.options import ONE_SUBMIT, JobOptions, check_options, merged, refuse_function
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.deduplication import hash_of
from headrace.core.lifecycle.submission import submit
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.handle import JobHandle
    from headrace.client.submission.parentage import Parentage
    from headrace.worker.handler import Handler

__all__ = ["KEY_OPTIONS", "SPEC_OPTIONS", "Draft", "asked_in"]

R_co = TypeVar("R_co", covariant=True)

SPEC_OPTIONS = (
    "queue", "priority", "retry", "timeout", "heartbeat", "remote_heartbeat", "retention", "tags", "metadata",
    "customer", "requires", "dedup", "request_key", "concurrency_key", "after", "after_when", "on_parent_failure",
    "trace", "headers", "route", "query",
)  # fmt: skip
"""The options that are part of a spec."""
KEY_OPTIONS = ("dedup_for", "on_duplicate")
"""Those that are so for a job with a dedup key; without one they mean nothing."""
_ASKED = frozenset(SPEC_OPTIONS)
_TIMES = ("delay", "not_before", "not_after")


def asked_in(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a spec takes of checked options."""
    asked = {name: value for name, value in options.items() if name in _ASKED}
    if asked.get("dedup") is not None:
        asked |= {name: options[name] for name in KEY_OPTIONS if name in options}
    return asked


class Draft(Generic[R_co]):
    """A checked payload with its options and its id; made by ``task.draft(...)``."""

    __slots__ = ("_app", "_asked", "_handler", "id", "options", "payload_text", "task")

    def __init__(
        self,
        app: App,
        id: UUID,
        task: str,
        payload_text: str,
        options: Mapping[str, Any],
        handler: Handler | None = None,
        asked: dict[str, Any] | None = None,
    ) -> None:
        """``asked``: what ``asked_in`` finds in the options, if that is known already."""
        self._app = app
        self.id = id
        """The id the job will have."""
        self.task = task
        """The task's name."""
        self.payload_text = payload_text
        """The arguments as they will be stored."""
        self.options = options
        """Checked options; the dedup key is filled in."""
        self._handler = handler
        self._asked = asked

    def __repr__(self) -> str:
        return f"<Draft {self.task} {self.id}>"

    def with_options(self, **options: Unpack[JobOptions]) -> Draft[R_co]:
        """The same job, under the same id, with these options in place of its own; for middleware that passes it on;
        :raises ConfigError: naming the option"""
        own = None if self._handler is None else self._handler.policy.retry.function
        changed = merged(self.options, refuse_function(check_options(options), own))
        return Draft(self._app, self.id, self.task, self.payload_text, changed, self._handler)

    def _with_checked(self, options: Mapping[str, Any]) -> Draft[R_co]:
        """Like ``with_options``, for options of one submit that are in the form they are used in already."""
        asked = None if self._asked is None else {**self._asked, **asked_in(options)}
        whole = merged(self.options, options)
        return Draft(self._app, self.id, self.task, self.payload_text, whole, self._handler, asked)

    async def submit(self) -> JobHandle[R_co]:
        """Store the job; a second time finds the first;
        :raises Duplicate: the dedup key is held and ``on_duplicate`` says so"""
        from headrace.client.submission.submit import submit  # which must know what a draft is

        return await submit(self)

    def submit_sync(self) -> JobHandle[R_co]:
        """``submit`` for callers without an event loop; a ``connection`` is used on this very thread;
        :raises SyncInAsync: this thread has a running event loop"""
        from headrace.client.submission.direct import submit

        return submit(self)

    def _spec(self, now: datetime, parentage: Parentage | None = None, batch: UUID | None = None) -> Spec:
        """The spec of the job; as a child, and as part of a batch."""
        asked = asked_in(self.options) if self._asked is None else self._asked  # which other drafts share
        if parentage is not None:
            taken = {"trace": parentage.trace, "customer": parentage.customer, "priority": parentage.priority}
            asked = {**taken, **asked, "parent": parentage.parent, "root": parentage.root}
        if asked.get("request_key") is not None:
            uncounted = frozenset[str]() if self._handler is None else self._handler.uncounted
            said = hash_of(self.payload_text, asked.get("route"), asked.get("query"), uncounted)
            asked = {**asked, "request_hash": said}
        return Spec(task=self.task, created_at=now, batch=batch, **asked)

    def _job(self, now: datetime, parentage: Parentage | None = None, batch: UUID | None = None) -> Job:
        """The job as of now, from which ``delay`` counts; as a child, and as part of a batch."""
        delay: float | None = self.options.get("delay")
        due: datetime | None = self.options.get("not_before")
        if delay is not None:
            try:
                due = now + timedelta(seconds=delay)
            except OverflowError:
                raise ConfigError(f"delay of {delay:g} s ends after the last day of the calendar") from None
        not_after: datetime | None = self.options.get("not_after")
        spec = self._spec(now, parentage, batch)
        waits = len(spec.after)
        return submit(self.id, spec, self.payload_text, now, available_at=due, not_after=not_after, waits=waits)

    def _refuse_times(self, why: str) -> None:
        """Refuse options that speak of one moment or one transaction, for a draft that is used at other moments."""
        for name in (*_TIMES, "after", *ONE_SUBMIT):
            if self.options.get(name):
                raise ConfigError(f"{name} has no place here: {why}")
