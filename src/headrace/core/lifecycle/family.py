"""Families of jobs: which job waits for which, which cancel reaches which, and the notes that ensure both.

What a change means for other jobs is not part of its write: the finish of a job that a thousand others wait for would
be a thousand writes. The write leaves a note instead, in the same commit, and ``Families.process_notes`` processes it:
at once or, if that process is gone, by the sweeper. Processing a note twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

from headrace.core.attempt import ErrorInfo
from headrace.core.batch import Batch, stop
from headrace.core.change import Change, Note
from headrace.core.defaults import Rules
from headrace.core.job import Job, derived_id
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.decision import may_have_children
from headrace.core.lifecycle.submission import unblock
from headrace.core.status import ENDED, Reason, Status, Verb
from headrace.errors import ConfigError, HeadraceError, JobNotFound, TransitionRefused

__all__ = [
    "Note",
    "cancel_child",
    "child_id",
    "follow",
    "in_order",
    "may_be_looked_for",
    "may_move",
    "note_of_new",
    "passes_on",
    "refusal",
    "release",
    "still_cancelled",
    "unknown_parent",
]


def note_of_new(job: Job) -> tuple[Note, ...]:
    """Return the note to store with an insert: the parents may have ended before."""
    return (Note.WAITS,) if job.status is Status.WAITING else ()


def refusal(parent: UUID, status: Status | None, cancel_requested: bool, job: Job) -> HeadraceError | None:
    """Return why a job may not become a child of this parent; None: it may. A parent that is gone was not cancelled."""
    if status is Status.CANCELLED or cancel_requested:
        why = (
            f"its parent {parent} was cancelled, which holds for its children; what must follow belongs in on_cancelled"
        )
        return TransitionRefused(job, Verb.SUBMIT, why)
    return None


def unknown_parent(id: UUID) -> HeadraceError:
    """Return why a job may not wait for another."""
    return JobNotFound(
        id,
        f"after: no job {id}: never accepted here, or pruned; submit it first, or together with it, and if it is a"
        " duplicate, wait for the job that holds its key",
    )


def release(job: Job, parents: Collection[Status | None], now: datetime) -> Change | None:
    """Return what the statuses of its parents mean for a waiting job; None: it waits on.

    A parent that is gone (None) does not block: none is pruned while a live job waits for it, so the waiting job had
    ended, and was retried since.
    """
    if job.status is not Status.WAITING:
        return None
    spec = job.spec
    if spec.after_when == "succeeded" and any(one in ENDED for one in set(parents) - {Status.COMPLETED}):
        cancel = spec.on_parent_failure == "cancel"
        error = None if cancel else ErrorInfo("ParentFailed", "a job that it waited for did not succeed")
        return unblock(job, now, as_asked=False, cancel=cancel, error=error)
    if all(one in ENDED or one is None for one in parents):
        return unblock(job, now)
    return None


def may_move(parents: Collection[Status | None]) -> bool:
    """Return whether ``release`` may change a job with such parents: not while none has failed and some live. Saves an
    engine the check of jobs that wait for many."""
    live = {one for one in parents if one is not None and one not in ENDED}
    return not live or bool(set(parents) - live - {Status.COMPLETED})


def passes_on(child: Job) -> bool:
    """Return whether a cancel of its parent is passed on to the children of an ended job: if it may have had some."""
    return child.ended and may_have_children(child)


def still_cancelled(parent: Job) -> bool:
    """Return whether a note that a job was cancelled is still true, for itself or for one above it: not if it was
    retried since. Its children are those of a live job again."""
    return parent.ended or parent.cancel_requested_at is not None


def may_be_looked_for(parent: Status | None) -> bool:
    """Return whether a later attempt of its parent (None: gone, or there is none) may look for an ended child, and
    would submit it again if it were pruned. A completed job is not tried again."""
    return parent is not None and parent is not Status.COMPLETED


def cancel_child(child: Job, now: datetime, rules: Rules) -> Change | None:
    """Cancel a child of a cancelled parent; None: it ended before, or is being stopped already."""
    if child.ended:
        return None
    return actions.cancel(child, now, rules, reason=Reason.PARENT)


def follow(
    job: Job,
    parents: Collection[Status | None],
    now: datetime,
    rules: Rules,
    *,
    parent_cancelled: bool = False,
    batch: Batch | None = None,
) -> Change | None:
    """Return what the notes that reached a job together make of it; None: nothing.

    ``parent_cancelled``: its parent was cancelled. ``batch``: its batch, if that was cancelled and still exists. A
    cancel goes first; without one, the jobs it waits for may have ended, and no other note will say so again.
    """
    change = cancel_child(job, now, rules) if parent_cancelled else None
    if change is None and batch is not None:
        change = stop(job, batch, now, rules)
    return release(job, parents, now) if change is None else change


def child_id(parent: UUID, call: str, place: int) -> UUID:
    """Return the id of what a handler submits by the ``place``-th of equal calls: the same in every attempt."""
    return derived_id(parent, f"{parent}/{place}/{call}")


def in_order(after: Mapping[UUID, tuple[UUID, ...]]) -> list[UUID]:
    """Return new jobs, given which ones each waits for, so that none is before one it waits for; else in their order.

    :raises ConfigError: some wait for each other in a circle
    """
    order, done = list[UUID](), dict[UUID, bool]()
    for first in after:
        path = [(first, iter(after[first]))] if first not in done else []
        done.setdefault(first, False)
        while path:
            id, rest = path[-1]
            step = next((one for one in rest if one in after and done.get(one) is not True), None)
            if step is None:
                done[id] = True
                order.append(id)
                path.pop()
            elif step in done:
                circle = [one for one, _ in path]
                names = " → ".join(str(one) for one in [*circle[circle.index(step) :], step])
                raise ConfigError(f"after: these wait for each other in a circle, so none would ever run: {names}")
            else:
                done[step] = False
                path.append((step, iter(after[step])))
    return order
