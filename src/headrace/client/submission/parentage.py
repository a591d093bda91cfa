"""What a job is to the handler that submits it: its child, with an id that a later attempt finds again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from headrace.core.job import Job
from headrace.core.lifecycle.family import child_id, in_order
from headrace.worker.execution.context import Context

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.draft import Draft

__all__ = ["Parentage", "arranged", "is_found_again", "new_id", "parentage_here"]


class Parentage(msgspec.Struct, frozen=True):
    """What a child takes from the job that submits it."""

    parent: UUID
    root: UUID
    trace: dict[str, str] | None
    customer: str | None
    """The customer for whom that job runs: so does the child, unless its submit says otherwise."""
    priority: int
    """The priority of that job: the child has it unless its submit, its task or the App names one."""

    @classmethod
    def of(cls, job: Job, trace: dict[str, str] | None) -> Parentage:
        """What children of this job take from it, as part of this trace."""
        return cls(job.id, job.spec.root or job.id, trace, job.customer, job.priority)


def _parent(app: App) -> Context | None:
    """The handler this code runs in, if it is one of this App and its run is of one job."""
    ctx = Context._current_or_none()
    if ctx is None or not ctx._caller.of_one or ctx.job.task not in app.tasks:
        return None
    return ctx


def parentage_here(app: App) -> Parentage | None:
    """The parentage of a job that is submitted here; None outside a handler."""
    ctx = _parent(app)
    return None if ctx is None else Parentage.of(ctx.job, getattr(ctx, "_trace", ctx.job.trace))


def new_id(app: App, task: str, payload_text: str, options: Mapping[str, Any], now: datetime | None = None) -> UUID:
    """An id for a job that is drafted here: in a handler that of the same call in an earlier attempt.

    A call is known by its task and arguments, and among equal ones by its number: were it the number alone, handlers
    that submit from several tasks at once would mistake one call for another, and leave one out.
    """
    ctx = _parent(app) if options.get("derived_id", True) else None
    if ctx is None:
        return app.host.new_id(now)
    call = f"{task}({payload_text})"
    return child_id(ctx.job.id, call, ctx._place(call))


def is_found_again(draft: Draft[Any]) -> bool:
    """Whether the handler this code runs in was stopped so that a later attempt finds this job of it: by a time-out, a
    shutdown or a loss. What it runs may go on, then; a cancel reaches it as a child."""
    ctx = _parent(draft._app)
    return ctx is not None and ctx.stopping not in (None, "cancelled") and bool(draft.options.get("derived_id", True))


def arranged(drafts: Sequence[Draft[Any]]) -> list[Draft[Any]]:
    """The drafts so that none is before one it waits for; as they are where none waits;
    :raises ConfigError: some wait for each other in a circle"""
    if not any(draft.options.get("after") for draft in drafts):
        return list(drafts)
    by_id = {draft.id: draft for draft in drafts}
    return [by_id[id] for id in in_order({id: draft.options.get("after", ()) for id, draft in by_id.items()})]
