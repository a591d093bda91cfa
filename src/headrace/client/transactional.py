"""Submitting within a transaction of the caller's own: the job exists if and only if that is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from headrace.client import sync
from headrace.client.children import parentage_here
from headrace.client.session import Session
from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.engine import Duplicated, Engine, Enlisted, InsertAnswer, Inserted, Refused, Statements, Transactions
from headrace.engine.statements import walk, walk_async
from headrace.errors import ConfigError, Duplicate, NotSupported
from headrace.handle import JobHandle
from headrace.runtime.batcher import MAX_ROWS
from headrace.runtime.meeting import meeting

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.draft import Draft

__all__ = ["handle_of", "submit", "submit_here"]

R = TypeVar("R")
T = TypeVar("T")


async def submit(session: Session, drafts: Sequence[Draft[Any]], connection: Any) -> list[JobHandle[Any]]:
    """Store jobs as part of the transaction that is open on the connection.

    :raises NotSupported: the engine cannot, or does not know this kind of connection
    """
    enlisted = _transactions(session.engine).enlist(connection)
    if enlisted.blocking and sync.is_here():
        raise ConfigError(
            "connection: a synchronous one is used on the thread it belongs to:"
            " task.options(connection=connection).submit_sync(...) does that, app.wait(...) does not"
        )

    async def run(steps: Statements[T]) -> T:
        return enlisted.run_blocking(steps) if enlisted.blocking else await enlisted.run(steps)

    async def met(job: Job, answer: InsertAnswer) -> InsertAnswer:
        async def execute(change: Change | None) -> Any:
            if change is None:
                return (await run(await _inserting(session, [job])))[0]
            return await run(await _applying(session, change))

        return await walk_async(meeting(job, answer, session.host.clock.now), execute)

    answers: list[InsertAnswer] = []
    for part in _parts(drafts):
        jobs = await _jobs(session, part)
        found = await run(await _inserting(session, jobs))
        answers += [await met(job, answer) for job, answer in zip(jobs, found, strict=True)]
    return _handles(drafts, answers)


def submit_here(app: App, drafts: Sequence[Draft[Any]], connection: Any) -> list[JobHandle[Any]]:
    """The same for callers without an event loop: what is written is prepared on the background loop, and written on
    this thread, to which the connection belongs.

    :raises ConfigError: the connection is one that must be awaited
    """

    async def prepare(part: Sequence[Draft[Any]]) -> tuple[Session, list[Job], Statements[list[InsertAnswer]]]:
        session = app.session
        jobs = await _jobs(session, part)
        return session, jobs, await _inserting(session, jobs)

    answers: list[InsertAnswer] = []
    for part in _parts(drafts):
        session, jobs, steps = app.wait(prepare(part))
        enlisted = _transactions(session.engine).enlist(connection)
        if not enlisted.blocking:
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise ConfigError(f"connection: a {kind} must be awaited: use `await task.submit(...)` on its event loop")
        found = enlisted.run_blocking(steps)
        answers += [_met(app, session, enlisted, job, answer) for job, answer in zip(jobs, found, strict=True)]
    return _handles(drafts, answers)


def _met(app: App, session: Session, enlisted: Enlisted, job: Job, answer: InsertAnswer) -> InsertAnswer:
    """What becomes of a submit that met another job with its key, on this thread."""

    def execute(change: Change | None) -> Any:
        if change is None:
            return enlisted.run_blocking(app.wait(_inserting(session, [job])))[0]
        return enlisted.run_blocking(app.wait(_applying(session, change)))

    return walk(meeting(job, answer, session.host.clock.now), execute)


def handle_of(draft: Draft[R], answer: Inserted | Duplicated, *, uncommitted: bool = False) -> JobHandle[R]:
    """The job as its submitter holds it; :raises Duplicate: if that was asked for

    A request that is repeated is no duplicate in this sense: it is answered as the first time.
    """
    job = answer.job
    if not isinstance(answer, Duplicated):
        return JobHandle(draft.app, job.id, last=job, handler=draft.handler, uncommitted=uncommitted)
    if draft.options.get("on_duplicate") == "raise" and not _is_repeated(draft, job):
        raise Duplicate(job)
    return JobHandle(
        draft.app,
        job.id,
        last=job,
        duplicate=True,
        replaced=answer.replaced,
        handler=draft.handler,
        uncommitted=uncommitted,
    )


def _is_repeated(draft: Draft[Any], job: Job) -> bool:
    """Whether the job is that of an earlier submit of the same request."""
    key, customer = draft.options.get("request_key"), draft.options.get("customer")
    return key is not None and (key, customer) == (job.spec.request_key, job.spec.customer)


def _transactions(engine: Engine) -> Transactions:
    if engine.transactions is None:
        raise NotSupported(f"connection: the {engine.name} engine cannot submit within a transaction of yours")
    return engine.transactions


def _parts(drafts: Sequence[Draft[Any]]) -> list[Sequence[Draft[Any]]]:
    return [drafts[start : start + MAX_ROWS] for start in range(0, len(drafts), MAX_ROWS)]


async def _jobs(session: Session, drafts: Sequence[Draft[Any]]) -> list[Job]:
    now, parentage = await session.lanes.now(), parentage_here(drafts[0].app)
    jobs = [draft.job(now, parentage) for draft in drafts]
    await session.lanes.submits.requirements.look(jobs)
    return jobs


async def _inserting(session: Session, jobs: Sequence[Job]) -> Statements[list[InsertAnswer]]:
    return await _transactions(session.engine).inserting(jobs, session.host.clock.now())


async def _applying(session: Session, change: Change) -> Statements[Verdict]:
    """A change of the job that holds the dedup key of a submit, as part of the same transaction."""
    stamped = replace(change, id=session.host.dice.token())
    return await _transactions(session.engine).applying(stamped, session.host.clock.now())


def _handles(drafts: Sequence[Draft[Any]], answers: Sequence[InsertAnswer]) -> list[JobHandle[Any]]:
    handles = []
    for draft, answer in zip(drafts, answers, strict=True):
        if isinstance(answer, Refused):
            raise answer.error
        handles.append(handle_of(draft, answer, uncommitted=True))
    return handles
