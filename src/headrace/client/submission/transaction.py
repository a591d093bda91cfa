"""Submitting within a transaction of the caller's own: the job exists if and only if that is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from headrace.client import background
from headrace.client.handle import JobHandle, handle_of
from headrace.client.session import Session
from headrace.client.submission.parentage import parentage_here
from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.engine import (
    Companions,
    Engine,
    Enlisted,
    InsertAnswer,
    Refused,
    Statements,
    Transactions,
)
from headrace.engine.transactions import walk, walk_async
from headrace.errors import ConfigError, NotSupported, Unavailable
from headrace.runtime.writes.batcher import MAX_ROWS
from headrace.runtime.writes.duplicates import meeting
from headrace.runtime.writes.inserts import chunks
from headrace.runtime.writes.omissions import log_verdicts

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.draft import Draft

__all__ = ["submit", "submit_here"]

T = TypeVar("T")


async def submit(session: Session, drafts: Sequence[Draft[Any]], connection: Any) -> list[JobHandle[Any]]:
    """Store jobs as part of the transaction that is open on the connection;
    :raises NotSupported: the engine cannot, or does not know this kind of connection"""
    enlisted = _transactions(session.engine).enlist(connection)
    if enlisted.blocking and background.is_here():
        raise ConfigError(
            "connection: a synchronous one is used on the thread it belongs to:"
            " task.options(connection=connection).submit_sync(...) does that, app.wait(...) does not"
        )

    async def run(steps: Statements[T]) -> T:
        return enlisted.run_blocking(steps) if enlisted.blocking else await enlisted.run(steps)

    async def met(job: Job, answer: InsertAnswer, others: Companions) -> InsertAnswer:
        async def execute(change: Change | None) -> Any:
            if change is None:
                return (await run(await _inserting(session, [job], others)))[0]
            return _logged(await run(await _applying(session, change, others)))

        return await walk_async(meeting(job, answer, session.host.clock.now), execute)

    answers: list[InsertAnswer] = []
    for part in _parts(drafts):
        jobs, others = await _jobs(session, part)
        for chunk in chunks(jobs, others):
            found = await run(await _inserting(session, chunk, others))
            answers += [await met(job, answer, others) for job, answer in zip(chunk, found, strict=True)]
    return _handles(drafts, answers)


def submit_here(app: App, drafts: Sequence[Draft[Any]], connection: Any) -> list[JobHandle[Any]]:
    """The same for callers without an event loop: what is written is prepared on the background loop, and written on
    this thread, to which the connection belongs; :raises ConfigError: the connection is one that must be awaited"""

    async def prepare(part: Sequence[Draft[Any]]) -> tuple[Session, Sequence[Job], Companions]:
        return app.session, *await _jobs(app.session, part)

    answers: list[InsertAnswer] = []
    for part in _parts(drafts):
        session, jobs, others = app.wait(prepare(part))
        enlisted = _transactions(session.engine).enlist(connection)
        if not enlisted.blocking:
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise ConfigError(f"connection: a {kind} must be awaited: use `await task.submit(...)` on its event loop")
        for chunk in chunks(jobs, others):
            found = enlisted.run_blocking(app.wait(_inserting(session, chunk, others)))
            pairs = zip(chunk, found, strict=True)
            answers += [_met(app, session, enlisted, job, answer, others) for job, answer in pairs]
    return _handles(drafts, answers)


def _met(
    app: App, session: Session, enlisted: Enlisted, job: Job, answer: InsertAnswer, others: Companions
) -> InsertAnswer:
    """What becomes of a submit that found another job with its key, on this thread."""

    def execute(change: Change | None) -> Any:
        if change is None:
            return enlisted.run_blocking(app.wait(_inserting(session, [job], others)))[0]
        return _logged(enlisted.run_blocking(app.wait(_applying(session, change, others))))

    return walk(meeting(job, answer, session.host.clock.now), execute)


def _transactions(engine: Engine) -> Transactions:
    if engine.transactions is None:
        raise NotSupported(f"connection: the {engine.name} engine cannot submit within a transaction of yours")
    return engine.transactions


def _parts(drafts: Sequence[Draft[Any]]) -> list[Sequence[Draft[Any]]]:
    return [drafts[start : start + MAX_ROWS] for start in range(0, len(drafts), MAX_ROWS)]


async def _jobs(session: Session, drafts: Sequence[Draft[Any]]) -> tuple[Sequence[Job], Companions]:
    """The jobs, and their deliveries."""
    now, parentage, submits = await session.writer.now(), parentage_here(drafts[0]._app), session.writer.inserts
    try:
        wishes = [(draft._job(now, parentage), draft.options.get("webhook")) for draft in drafts]
        jobs = [await submits.webhooks.wished(job, wish) for job, wish in wishes]
    except Unavailable as error:
        error.add_note(
            "the address of a webhook is stored apart, and your transaction may hold the store: let a submit outside of"
            " it name the address first, or subscribe with app.webhooks.add"
        )
        raise
    await submits.requirements.look(jobs)
    return await submits.all_with_deliveries(jobs)


async def _inserting(session: Session, jobs: Sequence[Job], others: Companions) -> Statements[list[InsertAnswer]]:
    companions = {job.id: deliveries for job in jobs if (deliveries := others.get(job.id))}
    return await _transactions(session.engine).inserting(jobs, session.host.clock.now(), companions=companions or None)


async def _applying(session: Session, change: Change, others: Companions) -> Statements[Verdict]:
    """A change of the job that holds the dedup key of a submit, as part of the same transaction."""
    deliveries = tuple(one for job in change.inserts for one in others.get(job.id, ()))
    stamped = replace(change, id=session.host.dice.token(), inserts=(*change.inserts, *deliveries))
    return await _transactions(session.engine).applying(stamped, session.host.clock.now())


def _logged(verdict: Verdict) -> Verdict:
    log_verdicts([verdict])
    return verdict


def _handles(drafts: Sequence[Draft[Any]], answers: Sequence[InsertAnswer]) -> list[JobHandle[Any]]:
    handles = []
    for draft, answer in zip(drafts, answers, strict=True):
        if isinstance(answer, Refused):
            raise answer.error
        handles.append(handle_of(draft, answer, uncommitted=True))
    return handles
