"""Submitting drafts: one, several in one write, or several each for itself."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from headrace.client.draft import Draft
from headrace.client.handle import JobHandle, handle_of
from headrace.client.session import Session
from headrace.client.submission import transaction as within
from headrace.client.submission.middleware import check_drafts, through
from headrace.client.submission.parentage import Parentage, arranged, parentage_here
from headrace.core.job import Job
from headrace.engine import Duplicated, Inserted
from headrace.errors import ConfigError, Duplicate, EngineError
from headrace.runtime.slot import current
from headrace.worker.execution.context import Context

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["child_of_handler", "jobs_of", "submit", "submit_each", "submit_many", "wished"]


R = TypeVar("R")
T = TypeVar("T")


async def submit(draft: Draft[R], *, passed: bool = False) -> JobHandle[R]:
    """Store one job; ``passed``: the middleware of its App has let it pass."""
    app = draft._app
    if app._submit_middlewares and not passed:
        return (await through(app, [draft], partial(submit_many, app)))[0]
    session, connection = app.session, draft.options.get("connection")
    if connection is not None:
        return (await within.submit(session, [draft], connection))[0]
    parentage, writer = None if current.get() is None else child_of_handler(app), session.writer
    now, submits = writer.now_unless_old() or await writer.now(), writer.inserts
    job = draft._job(now, parentage)
    if "webhook" in draft.options:
        job = await submits.webhooks.wished(job, draft.options["webhook"])
    alone = submits.insert_alone(job)
    stored = None if alone is None else (await alone)[0]
    # What is in the way of others is waited for, or a duplicate: to insert a job again is harmless.
    return handle_of(draft, stored if isinstance(stored, Inserted) else await submits.insert(job))


async def submit_many(app: App, drafts: Sequence[Draft[Any]]) -> list[JobHandle[Any]]:
    """Store jobs in one atomic write up to 1,000, in chunks above; a draft given twice is stored once."""
    session = app.session
    check_drafts(app, drafts)
    unique = arranged(list({draft.id.int: draft for draft in drafts}.values()))
    if len(unique) == 1:
        return [await submit(unique[0], passed=True)] * len(drafts)
    given = [options.get("connection") for options in {id(draft.options): draft.options for draft in unique}.values()]
    if len({id(connection) for connection in given}) > 1:
        raise ConfigError("jobs submitted together must share one connection, or none")
    connection = given[0] if given else None
    if connection is not None:
        handles = await within.submit(session, unique, connection)
    else:
        parentage = child_of_handler(app)
        jobs = await wished(session, unique, jobs_of(unique, await session.writer.now(), parentage))
        answers = await session.writer.inserts.insert_many(jobs)
        handles = [handle_of(draft, answer) for draft, answer in zip(unique, answers, strict=True)]
    by_draft = {draft.id.int: handle for draft, handle in zip(unique, handles, strict=True)}
    return [by_draft[draft.id.int] for draft in drafts]


def child_of_handler(app: App) -> Parentage | None:
    """The parentage of what is submitted here, if this is a handler; its start is recorded at once, since what it
    submits shows that it ran.

    Not so within a transaction: what it submits is invisible before the commit, and its completion may be in it, too.
    """
    ctx = Context._current_or_none()
    if ctx is None:
        return None
    ctx._caller.acted()
    return parentage_here(app)


def jobs_of(
    drafts: Sequence[Draft[Any]], now: datetime, parentage: Parentage | None = None, batch: UUID | None = None
) -> list[Job]:
    """The jobs as of now; those of one task and one set of options differ in nothing but id and payload, and with a
    request key in the hash of the payload."""
    alike: dict[tuple[str, int], Job] = {}
    jobs = []
    for draft in drafts:
        key = (draft.task, id(draft.options))
        like = alike.get(key)
        if like is None or like.spec.request_key is not None:
            like = alike[key] = draft._job(now, parentage, batch)
        jobs.append(replace(like, id=draft.id, payload_text=draft.payload_text))
    return jobs


async def wished(session: Session, drafts: Sequence[Draft[Any]], jobs: list[Job]) -> list[Job]:
    """The jobs of these drafts, those with a webhook of their own with a reference to it."""
    if not any("webhook" in options for options in {id(draft.options): draft.options for draft in drafts}.values()):
        return jobs
    webhooks = session.writer.inserts.webhooks
    pairs = zip(drafts, jobs, strict=True)
    return [await webhooks.wished(job, draft.options.get("webhook")) for draft, job in pairs]


async def submit_each(app: App, drafts: Sequence[Draft[Any]]) -> list[JobHandle[Any] | Exception]:
    """Store jobs each for itself, many in one write: a handle for each, or why it was not stored."""
    check_drafts(app, drafts, "submit_each")
    if app._submit_middlewares or any(draft.options.get("connection") is not None for draft in drafts):
        return [await _or_error(draft.submit(), Exception) for draft in drafts]
    session = app.session
    jobs = jobs_of(drafts, await session.writer.now(), child_of_handler(app))
    wish = session.writer.inserts.webhooks.wished
    asked: list[Job | Exception] = [
        await _or_error(wish(job, options["webhook"]), ConfigError, EngineError) if "webhook" in options else job
        for options, job in zip((draft.options for draft in drafts), jobs, strict=True)
    ]
    answers = iter(await session.writer.inserts.insert_each([one for one in asked if isinstance(one, Job)]))
    found = [next(answers) if isinstance(one, Job) else one for one in asked]
    return [_handle_or_error(draft, answer) for draft, answer in zip(drafts, found, strict=True)]


async def _or_error(work: Awaitable[T], *kinds: type[Exception]) -> T | Exception:
    try:
        return await work
    except kinds as error:
        return error


def _handle_or_error(draft: Draft[R], answer: Inserted | Duplicated | Exception) -> JobHandle[R] | Exception:
    if isinstance(answer, Exception):
        return answer
    try:
        return handle_of(draft, answer)
    except Duplicate as error:
        return error
