"""What is done with jobs through an open App: submit them, look at them. What acts on them is in ``acting``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.client import transactional as within
from headrace.client.charts import running_times
from headrace.client.children import Parentage, arranged, new_id, parentage_here
from headrace.client.registry import check_payload, told_unregistered, warn_unregistered
from headrace.client.session import Session
from headrace.client.submitting import check_drafts
from headrace.core import bounds
from headrace.core.codec.codec import Codec, Misfit
from headrace.core.entry import BEGIN, Kind, LogLine
from headrace.core.explain.explain import Explanation
from headrace.core.explain.explain import explain as tell
from headrace.core.explain.waiting import relatives
from headrace.core.hiding import hidden_history, hidden_job
from headrace.core.job import Job
from headrace.core.limits.limit import Usage
from headrace.core.limits.rule import Bound, counted_by, group_of, limits_of
from headrace.core.query import Filter, as_seen, seen_status
from headrace.core.status import HELD, Status
from headrace.draft import Draft
from headrace.engine import MAX_BATCH, Duplicated, Engine, Inserted, WorkerRow
from headrace.errors import (
    ConfigError,
    Duplicate,
    EngineError,
    InvalidPayload,
    JobNotFound,
    PayloadTooLarge,
    shown,
)
from headrace.handle import JobHandle
from headrace.handler import check_task_name
from headrace.options import check_key, check_options, fill_templates, merged, refuse_function
from headrace.runtime.readable import readable
from headrace.runtime.waiting import current
from headrace.worker.context import Context

if TYPE_CHECKING:
    from headrace.app import App

__all__ = [
    "child_of_handler",
    "draft_and_warning",
    "draft_by_name",
    "explain",
    "get",
    "jobs_of",
    "logs",
    "submit",
    "submit_all",
    "submit_each",
    "submit_many",
    "wished",
]

R = TypeVar("R")

_OBJECT = Codec(dict[str, Any], plain=False)  # the annotations that say what its values are stand elsewhere
_HOLDERS = 1000


# Submitting


async def submit(session: Session, draft: Draft[R]) -> JobHandle[R]:
    """Store one job."""
    connection = draft.options.get("connection")
    if connection is not None:
        return (await within.submit(session, [draft], connection))[0]
    parentage, lanes = None if current.get() is None else child_of_handler(draft.app), session.lanes
    now, submits = lanes.now_unless_old() or await lanes.now(), lanes.submits
    job = draft.job(now, parentage)
    if "webhook" in draft.options:
        job = await submits.webhooks.wished(job, draft.options["webhook"])
    alone = submits.insert_alone(job)
    stored = None if alone is None else (await alone)[0]
    # What is in the way of others is waited for, or met: to insert a job again is harmless.
    return within.handle_of(draft, stored if isinstance(stored, Inserted) else await submits.insert(job))


async def submit_all(app: App, drafts: Sequence[Draft[Any]]) -> list[JobHandle[Any]]:
    """Store what the middleware of one submit let pass: mostly one job."""
    return [await submit(app.session, drafts[0])] if len(drafts) == 1 else await submit_many(app, drafts)


async def submit_many(app: App, drafts: Sequence[Draft[Any]]) -> list[JobHandle[Any]]:
    """Store jobs in one atomic write up to 1,000, in chunks above; a draft given twice is stored once."""
    session = app.session
    check_drafts(app, drafts)
    unique = arranged(list({draft.id.int: draft for draft in drafts}.values()))
    given = [options.get("connection") for options in {id(draft.options): draft.options for draft in unique}.values()]
    if len({id(connection) for connection in given}) > 1:
        raise ConfigError("jobs submitted together must share one connection, or none")
    connection = given[0] if given else None
    if connection is not None:
        handles = await within.submit(session, unique, connection)
    else:
        parentage = child_of_handler(app)
        jobs = await wished(session, unique, jobs_of(unique, await session.lanes.now(), parentage))
        answers = await session.lanes.insert_many(jobs)
        handles = [within.handle_of(draft, answer) for draft, answer in zip(unique, answers, strict=True)]
    by_draft = {draft.id.int: handle for draft, handle in zip(unique, handles, strict=True)}
    return [by_draft[draft.id.int] for draft in drafts]


def child_of_handler(app: App) -> Parentage | None:
    """A handler that submits has been seen to run, whatever becomes of it: its start is recorded at once. What it
    submits is its child.

    Not so within a transaction: nobody sees what it submits before the commit, and its completion may be in it, too.
    """
    ctx = Context.current_or_none()
    if ctx is None:
        return None
    ctx.caller.acted()
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
            like = alike[key] = draft.job(now, parentage, batch)
        jobs.append(replace(like, id=draft.id, payload_text=draft.payload_text))
    return jobs


async def wished(session: Session, drafts: Sequence[Draft[Any]], jobs: list[Job]) -> list[Job]:
    """The jobs of these drafts, those with a webhook of their own with a reference to it."""
    if not any("webhook" in options for options in {id(draft.options): draft.options for draft in drafts}.values()):
        return jobs
    webhooks = session.lanes.submits.webhooks
    pairs = zip(drafts, jobs, strict=True)
    return [await webhooks.wished(job, draft.options.get("webhook")) for draft, job in pairs]


async def submit_each(app: App, drafts: Sequence[Draft[Any]]) -> list[JobHandle[Any] | Exception]:
    """Store jobs each for itself, many in one write: a handle for each, or why it was not stored."""
    check_drafts(app, drafts, "submit_each")
    if app.submit_middlewares or any(draft.options.get("connection") is not None for draft in drafts):
        return [await _alone(draft) for draft in drafts]
    session = app.session
    jobs = jobs_of(drafts, await session.lanes.now(), child_of_handler(app))
    asked: list[Job | Exception] = [
        await _wished_or_error(session, draft, job) if "webhook" in draft.options else job
        for draft, job in zip(drafts, jobs, strict=True)
    ]
    answers = iter(await session.lanes.submits.insert_each([one for one in asked if isinstance(one, Job)]))
    found = [next(answers) if isinstance(one, Job) else one for one in asked]
    return [_handle_or_error(draft, answer) for draft, answer in zip(drafts, found, strict=True)]


async def _wished_or_error(session: Session, draft: Draft[Any], job: Job) -> Job | Exception:
    try:
        return await session.lanes.submits.webhooks.wished(job, draft.options["webhook"])
    except (ConfigError, EngineError) as error:
        return error


async def _alone(draft: Draft[R]) -> JobHandle[R] | Exception:
    try:
        return await draft.submit()
    except Exception as error:
        return error


def _handle_or_error(draft: Draft[R], answer: Inserted | Duplicated | Exception) -> JobHandle[R] | Exception:
    if isinstance(answer, Exception):
        return answer
    try:
        return within.handle_of(draft, answer)
    except Duplicate as error:
        return error


async def draft_by_name(app: App, name: str, payload: Mapping[str, Any], options: Mapping[str, Any]) -> Draft[Any]:
    """A draft of a task known here, else of one a worker has registered, else of one nobody knows, with a warning."""
    draft, unregistered = await draft_and_warning(app, name, payload, options)
    if unregistered is not None:
        warn_unregistered(unregistered)
    return draft


async def draft_and_warning(
    app: App, name: str, payload: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Draft[Any], str | None]:
    """A draft of a task by name, and what is to be said of a task that nobody knows."""
    name = check_task_name(name)  # no task can have another, so its job would wait for ever
    if not isinstance(payload, Mapping):
        raise InvalidPayload(name, f"the payload must be a mapping of arguments by name, not {shown(payload)}")
    task = app.by_name.get(name)
    if task is not None:
        return task.with_options(options).draft_bound(payload), None
    checked, text = refuse_function(check_options(options)), _payload_text(name, payload)
    doc = await app.session.find_task(name)
    if doc is None:
        whole = merged(app.defaults, checked)
        check_key(checked, whole)
        draft: Draft[Any] = Draft(app, new_id(app, name, text, checked), name, text, whole)
        if await app.session.is_run(name, whole.get("requires") or {}):
            return draft, None
        return draft, told_unregistered(name, (*app.by_name, *app.session.task_names))
    plain: dict[str, Any] = msgspec.json.decode(text)
    check_payload(doc, plain)
    whole = merged(doc.to_options(), checked)
    check_key(checked, whole)
    properties: dict[str, Any] = doc.schema.get("properties", {})
    known = {one: schema["default"] for one, schema in properties.items() if "default" in schema}
    id = new_id(app, doc.name, text, checked)
    return Draft(app, id, doc.name, text, fill_templates(whole, lambda: known | plain)), None


def _payload_text(name: str, payload: Mapping[str, Any]) -> str:
    try:
        text = _OBJECT.encode(dict(payload))
    except Misfit as error:
        raise InvalidPayload(name, error.message, error.path or None) from None
    if (size := bounds.size_of(text)) > bounds.PAYLOAD:
        raise PayloadTooLarge(name, f"the payload is {size} bytes, at most {bounds.PAYLOAD}; pass a reference instead")
    return text


# Looking


async def get(session: Session, id: UUID) -> Job:
    """The job as it stands."""
    job = (await session.engine.jobs.get([id]))[0]
    if job is None:
        raise JobNotFound(id)
    return as_seen(job, session.host.clock.now())


async def get_many(session: Session, ids: Sequence[UUID]) -> list[Job | None]:
    """The jobs as they stand, in this order; None where there is none."""
    found: list[Job | None] = []
    for part in range(0, len(ids), MAX_BATCH):
        found += await readable(session.engine, ids[part : part + MAX_BATCH])
    now = session.host.clock.now()
    return [None if job is None else as_seen(job, now) for job in found]


async def logs(session: Session, id: UUID, follow: bool, attempt: int | None) -> AsyncGenerator[LogLine, None]:
    """The lines of a job's log, of one attempt or of all."""
    if attempt is not None:
        bounds.whole(attempt, "attempt", 0)
    after = BEGIN if attempt is None else (attempt, BEGIN[1])
    async with aclosing(session.lanes.entry_reader.follow(id, Kind.LOG, after, wait=follow)) as following:
        async for entries, _ in following:
            for entry in entries:
                if attempt is not None and entry.attempt != attempt:
                    return
                yield LogLine.of(entry)


async def explain(
    session: Session, id: UUID, to: str | None = None, zone: tzinfo | None = None, hide: bool = False
) -> Explanation:
    """Why the job is in the status it is in; ``to``: a customer who is told; ``hide``: nothing of its errors."""
    engine, now = session.engine, session.host.clock.now()
    job = (await engine.jobs.get([id]))[0]
    if job is None:
        raise JobNotFound(id)
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    usage, holders, queued = Usage(), list[Job](), seen_status(job, now) is Status.QUEUED
    if limits.bounded(job.queue, job.task):
        group = group_of(job)
        usage = await engine.records.usage(list(limits.paced(group)))
        for bound in (one for one, most in limits.concurrency(group).items() if usage.held.get(one, 0) >= most):
            holders += await _holders(engine, bound, usage.held.get(bound, 0), now)
    workers, history = await engine.workers.list(), await engine.records.history(id)
    parents = [one for one in await readable(engine, relatives(job)) if one is not None]
    if hide:
        job, history, parents = hidden_job(job), hidden_history(history, job), list(map(hidden_job, parents))
    return tell(
        job,
        history,
        now,
        workers,
        limits=limits,
        usage=usage,
        holders=holders,
        position=await engine.records.position(job, now) if queued else None,
        parents=parents,
        rules=engine.rules,
        to=to,
        zone=zone,
        takes=(await running_times(session, task=job.task)).quantiles() if job.held else None,
        queue_takes=(await running_times(session, queue=job.queue)).quantiles() if queued else None,
        isolated=await _isolated(engine, job, workers, now) if queued else (),
    )


async def _isolated(engine: Engine, job: Job, workers: Sequence[WorkerRow], now: datetime) -> set[UUID]:
    """The strict workers that hold jobs of another customer than this job's."""
    strict = frozenset(
        row.info.id for row in workers if row.holds and row.info.customers is not None and row.info.customers.strict
    )
    if not strict:
        return set()
    held = (await engine.records.find(Filter(status=HELD, worker=strict), now, _HOLDERS)).items
    return {one.worker for one in held if one.worker is not None and one.customer not in (None, job.customer)}


async def _holders(engine: Engine, bound: Bound, held: int, now: datetime) -> list[Job]:
    """Jobs that are held and count against this bound. There is no index by key: those of the task are searched."""
    name = frozenset({bound[1]})
    of = Filter(status=HELD, queue=name) if bound[0] == "queue" else Filter(status=HELD, task=name)
    found, cursor, more = list[Job](), None, True
    while more and len(found) < min(held, _HOLDERS):
        page = await engine.records.find(of, now, _HOLDERS, cursor)
        found += (one for one in page.items if bound in counted_by(group_of(one)))
        cursor, more = page.cursor, page.cursor is not None
    return found
