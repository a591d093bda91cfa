"""Actions on jobs: on one, on some, on all that match; and new ones."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, cast
from uuid import UUID

import msgspec
from msgspec import Meta

from headrace.client.api.actions import ActionResult, result_of
from headrace.client.api.filters import Filters
from headrace.client.api.tasks import note_submit
from headrace.client.draft import Draft
from headrace.client.submission.by_name import draft_with_warnings
from headrace.core.defaults import MAX_NAME_CHARACTERS
from headrace.core.job import Job
from headrace.core.lifecycle.actions import ACTIONS, Action, RerunAction
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.core.priority import GivenPriority
from headrace.core.status import Verb
from headrace.dashboard.actions.endpoint import Act, ActionRefused, Done
from headrace.dashboard.format import count
from headrace.dashboard.page import Missing, PageRequest
from headrace.dashboard.pages.batches import batch_of
from headrace.dashboard.pages.jobs import filters_in
from headrace.errors import HeadraceError, InvalidPayload, UnknownTask

__all__ = ["ACTS", "may_submit", "payload_of"]

_log = logging.getLogger("headrace.dashboard")

OURS = "headrace."
MAX_CHOSEN_JOBS = 1000
"""Jobs that can be chosen one by one."""
PROGRESS_SECONDS = 0.25
"""Seconds between two lines of progress of an action on many."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]


class Details(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The fields of an action beside the jobs."""

    verb: Verb
    seconds: Annotated[float, Meta(ge=0, le=366 * 86400.0)] | None = None
    """How long the job waits: of ``postpone`` and ``retry``."""
    queue: Name | None = None
    priority: GivenPriority | None = None
    payload: dict[str, Any] | None = None
    result: Any = None
    error: Annotated[str, Meta(min_length=1, max_length=4000)] | None = None

    def action(self) -> Action:
        """Return the requested action; :raises ActionRefused: something is missing"""
        kind = _kind(self.verb)
        fields = kind.__struct_fields__ if kind is not RerunAction else ("payload",)  # with the options of the old job
        named = {field: "seconds" if field in ("delay", "until") else field for field in fields}
        given = {field: getattr(self, name, None) for field, name in named.items()}
        for field in kind.needs():
            if given[field] is None:
                raise ActionRefused(400, f"Say {'how long to wait' if named[field] == 'seconds' else f'a {field}'}.")
        return kind(**{field: value for field, value in given.items() if value is not None})


def _kind(verb: Verb) -> type[Action]:
    if verb not in ACTIONS:
        raise ActionRefused(400, "There is no such action.")
    return ACTIONS[verb]


class OnOne(Details, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An action on one job."""

    id: UUID


class OnMany(Details, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An action on jobs that were chosen, or on all that match."""

    ids: Annotated[tuple[UUID, ...], Meta(max_length=MAX_CHOSEN_JOBS)] | None = None
    filter: dict[str, Any] | None = None
    dry: bool = False


async def on_one(ask: PageRequest, wanted: OnOne) -> Done:
    """Do an action on one job."""
    job = await ask.job(str(wanted.id))
    _check(ask, wanted, [job])
    action = wanted.action()
    if action.revives:
        await ask.dashboard.gate.admit(ask.viewer, job)
    made = await ask.app.jobs.act(job.id, action, by=ask.viewer.name)
    text = f"The job is {action.past}."
    if action.verb is Verb.CANCEL and not made.ended:
        text = "Its worker is asked to stop it."
    return Done(told=text, go=ask.link(f"/jobs/{made.id}") if made.id != job.id else None)


async def check_one(ask: PageRequest, wanted: OnOne) -> Done:
    """Check that the job could be rerun with this payload."""
    job = await ask.job(str(wanted.id))
    _check(ask, wanted, [job])
    if wanted.payload is not None:
        await payload_of(ask, job.task, wanted.payload)
    return Done()


async def payload_of(ask: PageRequest, task: str, payload: dict[str, Any], data: Any = None) -> Draft[Any]:
    """Return a draft with this payload, one field of a form; :raises ActionRefused: it does not fit the task"""
    try:
        draft, _ = await draft_with_warnings(ask.app, task, payload, {})
    except (InvalidPayload, UnknownTask) as error:
        raise ActionRefused(422, str(error), "payload", data) from None
    return draft


def _check(ask: PageRequest, wanted: Details, jobs: Sequence[Job]) -> None:
    """Refuse what this viewer may not do, whatever the job is."""
    viewer, verb, kind = ask.viewer, wanted.verb, _kind(wanted.verb)
    if viewer.customer is not None and (not kind.customers or wanted.payload is not None):
        raise ActionRefused(403, "This is not for the key of a customer.")
    if verb is Verb.MOVE and wanted.queue is not None:
        may_submit(ask, None, wanted.queue)
    if verb is Verb.RERUN:
        for job in jobs:
            may_submit(ask, job.task if wanted.payload is not None else None, job.queue, ours=wanted.payload is None)
            if viewer.tasks is not None and job.task not in viewer.tasks:
                raise ActionRefused(403, f"You may not submit the task {job.task!r}.")


def may_submit(ask: PageRequest, task: str | None, queue: str, *, ours: bool = False) -> None:
    """Let pass what this viewer may submit; ``ours``: also where it is headrace's own queue."""
    viewer = ask.viewer
    for what, name, bound in (("task", task, viewer.tasks), ("queue", queue, viewer.queues)):
        if name is not None and name.startswith(OURS) and not ours:
            raise ActionRefused(403, f"{what}s named {OURS}… are headrace's own.")
        if name is not None and bound is not None and name not in bound:
            raise ActionRefused(403, f"You may use the {what}s {', '.join(sorted(bound))} alone, not {name!r}.")


# -- on many


async def on_many(ask: PageRequest, wanted: OnMany) -> Done | AsyncIterator[dict[str, Any]]:
    """Do an action on all that were chosen or match; a dry run only counts them."""
    verb = wanted.verb
    _check(ask, wanted, ())
    if wanted.payload is not None or verb is Verb.RESOLVE:
        raise ActionRefused(400, "This is done to one job at a time.")
    if wanted.ids is not None:
        if wanted.dry:
            found = [job for job in await ask.app.jobs.get_many(wanted.ids) if job is not None]
            mine = [job for job in found if ask.viewer.customer in (None, job.customer)]
            return Done(count=sum(job.status in TRANSITIONS[verb] for job in mine))
        return _counted(verb, _each(ask, wanted, wanted.ids), len(wanted.ids))
    bound = ask.viewer.tasks is not None or ask.viewer.queues is not None
    if bound and verb in (Verb.RERUN, Verb.MOVE):
        raise ActionRefused(403, "This key may do this to one job at a time.")
    frozen, filters = _frozen(ask, verb, wanted.filter or {})
    if filters is None:
        return Done(count=0, filter=frozen)
    jobs = ask.app.jobs.where(**filters)
    of = await jobs.preview(verb)
    if wanted.dry:
        return Done(count=of, filter=frozen)
    action = wanted.action()
    if action.revives:
        await ask.dashboard.gate.admit_all(ask.viewer, verb, filters, of)
    return _counted(verb, jobs.act(action, by=ask.viewer.name), of)


def _frozen(ask: PageRequest, verb: Verb, given: dict[str, Any]) -> tuple[dict[str, Any], Filters | None]:
    """Return the filter with its moments fixed, and the jobs that match: only those that exist at the first request,
    in statuses that the action can begin from; None: there are none."""
    now = ask.now
    filters, asked = filters_in(given, now)
    filters = ask.kept(filters)
    if "within" in asked:
        asked["created_after"] = filters["created_after"].isoformat()  # type: ignore[union-attr]
        del asked["within"]
    if "created_before" not in asked:
        asked["created_before"], filters["created_before"] = now.isoformat(), now
    wanted = {str(one) for one in cast(Any, filters).get("status") or TRANSITIONS[verb]} & {
        str(one) for one in TRANSITIONS[verb]
    }
    if not wanted:
        return asked, None
    return asked, {**filters, "status": sorted(wanted)}


async def _each(ask: PageRequest, wanted: OnMany, ids: Sequence[UUID]) -> AsyncGenerator[ActionResult, None]:
    for id in ids:
        try:
            job = await ask.job(str(id))
            _check(ask, wanted, [job])
            action = wanted.action()
            if action.revives:
                await ask.dashboard.gate.admit(ask.viewer, job)
            acted = await result_of(ask.app, id, action, ask.viewer.name)
        except Missing as missing:  # pruned since it was chosen: the others are acted on all the same
            acted = ActionResult(id=id, answer="not_found", message=f"there is no {missing}")
        except ActionRefused as refused:
            acted = ActionResult(id=id, answer="refused", message=str(refused))
        yield acted


async def _counted(verb: Verb, acting: AsyncGenerator[ActionResult, None], of: int) -> AsyncIterator[dict[str, Any]]:
    """Yield the progress from time to time, and the outcome at the end."""
    counts, said, why = Counter[str](), 0.0, None
    loop = asyncio.get_running_loop()
    async with aclosing(acting):
        async for acted in acting:
            counts[acted.answer] += 1
            why = why or acted.message
            if loop.time() - said >= PROGRESS_SECONDS:
                said = loop.time()
                yield {"did": sum(counts.values()), "of": of}
    done = counts["done"] + counts["requested"]
    text = f"{count(done)} {'job' if done == 1 else 'jobs'} {ACTIONS[verb].past}"
    left = counts["refused"] + counts["not_found"]
    if left:
        text += f", {count(left)} refused: {why}"
    yield {"did": sum(counts.values()), "of": of, "told": f"{text.removesuffix('.')}."}


# -- new ones


class NewJob(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A job to be submitted from a form."""

    task: Name
    payload: dict[str, Any]
    queue: Name | None = None
    priority: GivenPriority | None = None
    delay: Annotated[float, Meta(ge=0, le=366 * 86400.0)] | None = None
    customer: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    tags: tuple[Name, ...] = ()


async def submit(ask: PageRequest, wanted: NewJob) -> Done:
    """Submit a job."""
    draft = await _draft(ask, wanted)
    handle = await draft.submit()
    try:
        await note_submit(ask.app.session.engine, draft.task, handle.id, ask.viewer.name, ask.app.host.clock.now())
    except HeadraceError as error:  # the job is stored with its submitter: after an error, people would submit again
        _log.warning("that %s submitted job %s is not in the audit: %s", ask.viewer.name, handle.id, error)
    text = "The job that holds its key is here." if handle.duplicate else "The job is submitted."
    return Done(told=text, go=ask.link(f"/jobs/{handle.id}"))


async def check_job(ask: PageRequest, wanted: NewJob) -> Done:
    """Check that it could be submitted."""
    await _draft(ask, wanted)
    return Done()


async def _draft(ask: PageRequest, wanted: NewJob) -> Draft[Any]:
    options: dict[str, Any] = {
        name: value
        for name in ("queue", "priority", "delay", "customer")
        if (value := getattr(wanted, name)) is not None
    }
    if wanted.tags:
        options["tags"] = list(wanted.tags)
    options["metadata"] = {"submitted_by": ask.viewer.name}  # with the job in one write: the audit comes after
    draft, _ = await draft_with_warnings(ask.app, wanted.task, wanted.payload, options)
    may_submit(ask, draft.task, draft.options.get("queue", "default"))
    return draft


# -- batches and deliveries


class OfId(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Something that has an id."""

    id: UUID


async def cancel_batch(ask: PageRequest, wanted: OfId) -> Done:
    """Cancel those jobs of a batch that have not ended."""
    batch = await batch_of(ask, str(wanted.id))
    live = await ask.app.batches.handle(batch.id).cancel(by=ask.viewer.name)
    return Done(told=f"{count(live)} jobs of the batch are cancelled.")


async def redeliver(ask: PageRequest, wanted: OfId) -> Done:
    """Send a message of a webhook once more."""
    job = await ask.job(str(wanted.id))
    if job.ended:
        await ask.dashboard.gate.admit(ask.viewer, job)
    await ask.app.webhooks.redeliver(job.id, by=ask.viewer.name)
    return Done(told="The message is sent once more.")


ACTS: dict[str, Act] = {
    "job": Act("act", OnOne, on_one, "customer", check_one),
    "jobs": Act("act", OnMany, on_many, "customer"),
    "submit": Act("submit", NewJob, submit, check=check_job),
    "batch.cancel": Act("act", OfId, cancel_batch, "customer"),
    "redeliver": Act("act", OfId, redeliver, "customer"),
}
