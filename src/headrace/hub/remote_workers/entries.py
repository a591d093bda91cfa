"""What workers add to their jobs: lines of the log, items of the stream, results of steps, children."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request

from headrace.client.handle import handle_of
from headrace.client.submission.parentage import Parentage
from headrace.core.attempt import storable
from headrace.core.codec.json import Codec
from headrace.core.codec.value import encode_value
from headrace.core.defaults import MAX_KEY_CHARACTERS, MAX_LOG_LINES
from headrace.core.entry import BEGIN, Append, Cursor, Entry, Kind, log_data
from headrace.core.job import Job
from headrace.core.lifecycle.family import child_id
from headrace.core.query import seen_status
from headrace.core.validation import checked_name
from headrace.engine import MAX_BATCH
from headrace.errors import Unavailable
from headrace.hub.api.submit import draft_of
from headrace.hub.api.vocabulary import submission_of
from headrace.hub.remote_workers.held_job import HeldJob
from headrace.hub.remote_workers.messages import (
    ChildSubmitted,
    ItemsAcknowledged,
    JobItems,
    JobLog,
    JobStep,
    LogAcknowledged,
    StepResult,
    SubmitChild,
)
from headrace.hub.remote_workers.peers import Peer
from headrace.hub.server.operation import OperationRequest
from headrace.runtime.writes.load import size_at_most
from headrace.worker.execution.writers import MAX_WRITE_BYTES
from headrace.worker.log_capture import cut_line

__all__ = ["job_items", "job_log", "job_step", "submit_child"]

ANY = Codec(Any)
_MAX_TRIES = 20


def _taking(peer: Peer, texts: Sequence[str]) -> AbstractContextManager[None]:
    """Count these texts with what waits for the store, or refuse them; also those that wait for one another."""
    return peer.fleet.session.writer.load.taking(sum(map(size_at_most, texts)))


async def _append(held: HeldJob, entries: Sequence[Entry]) -> None:
    """Keep entries of a job that has its start on record; the caller has its lock.

    :raises LeaseLost: the job is no longer theirs
    """
    job = held.job
    assert job.worker is not None
    part, size = list[Entry](), 0
    for entry in (*entries, None):
        if part and (entry is None or size + len(entry.data) > MAX_WRITE_BYTES):
            if not await held.writer.append(Append(job.id, job.worker, held.epoch, tuple(part))):
                raise held.stale("the job was taken back, or has ended")
            part, size = [], 0
        if entry is not None:
            part.append(entry)
            size += len(entry.data)


async def job_log(peer: Peer, given: JobLog) -> LogAcknowledged:
    """Keep lines of the log of this attempt, as many as the log of an attempt may have."""
    with _taking(peer, [one.message for one in given.lines]):
        held = await peer.held(given)
        answer = await _lines(held, given)
    await held.signed()
    return answer


async def _lines(held: HeldJob, given: JobLog) -> LogAcknowledged:
    async with held.lock:
        job, now = await held.started(), held.writer.host.clock.now()
        lines = [log_data(one.level, one.logger, storable(cut_line(one.message))) for one in given.lines]
        kept = [
            Entry(Kind.LOG, job.attempt, number, data, now)
            for number, data in enumerate(lines, given.first)
            if number <= MAX_LOG_LINES
        ]
        dropped = len(lines) - len(kept)
        if dropped:
            full = f"what follows was not kept: the log of an attempt has {MAX_LOG_LINES} lines"
            kept.append(Entry(Kind.LOG, job.attempt, MAX_LOG_LINES + 1, log_data("WARNING", "headrace", full), now))
        await _append(held, kept)
    return LogAcknowledged(job_id=job.id, next=given.first + len(lines), dropped=dropped)


async def job_items(peer: Peer, given: JobItems) -> ItemsAcknowledged:
    """Keep items of the stream; the first of a later attempt begins it anew, unless it goes on behind earlier ones."""
    texts = [encode_value(ANY, item, f"items[{number}]") for number, item in enumerate(given.items)]
    with _taking(peer, texts):
        held = await peer.held(given)
        answer = await _items(held, given, texts)
    await held.signed()
    return answer


async def _items(held: HeldJob, given: JobItems, texts: Sequence[str]) -> ItemsAcknowledged:
    async with held.lock:
        job, now = await held.started(), held.writer.host.clock.now()
        items = [Entry(Kind.ITEM, job.attempt, number, text, now) for number, text in enumerate(texts, given.first)]
        if given.first == 1 and job.attempt > 1:
            items.insert(0, Entry(Kind.ITEM, job.attempt, 0, "null", now))
        await _append(held, items)
    return ItemsAcknowledged(job_id=job.id, next=given.first + len(texts))


async def job_step(peer: Peer, given: JobStep) -> StepResult:
    """Return a step's result, of this attempt or an earlier one; a result in the message is kept unless there is
    one."""
    checked_name(given.name, "a step's name, the same in every attempt,", MAX_KEY_CHARACTERS)
    text = None if given.result is UNSET else encode_value(ANY, given.result, f"step {given.name!r}")
    with _taking(peer, [text or ""]):
        held = await peer.held(given)
        answer = await _step(held, given, text)
    await held.signed()
    return answer


async def _step(held: HeldJob, given: JobStep, text: str | None) -> StepResult:
    async with held.lock:
        job = await held.started()
        for _ in range(_MAX_TRIES):
            found, last = await _steps(held, job, given.name)
            if found is not None or text is None:
                result = None if found is None else msgspec.json.decode(found)
                return StepResult(job_id=job.id, name=given.name, found=found is not None, result=result)
            # Another hub may take the same number at the same time: so it is read again.
            entry = Entry(Kind.STEP, job.attempt, last + 1, text, held.writer.host.clock.now(), given.name)
            await _append(held, [entry])
    raise Unavailable(f"step {given.name!r} could not be stored beside others", ids=[job.id])


async def _steps(held: HeldJob, job: Job, name: str) -> tuple[str | None, int]:
    """Return the result of the step, if it was kept, and the last number that this attempt has used."""
    after: Cursor = BEGIN
    last, text = 0, None
    while found := await held.writer.engine.entries.tail(job.id, Kind.STEP, after):
        for entry in found:
            last = entry.number if entry.attempt == job.attempt else last
            text = entry.data if entry.name == name else text
        after = found[-1].cursor
        if len(found) < MAX_BATCH:
            break
    return text, last


async def submit_child(peer: Peer, given: SubmitChild) -> ChildSubmitted:
    """Submit a child of the job, on behalf of the same customer; the same child again is not submitted twice."""
    held = await peer.held(given)
    async with held.lock:
        parent = await held.started()
        writer = held.writer
        caller = replace(peer.caller, customer=parent.customer)
        # The checks of a submit take an operation's request: so the message becomes one.
        ask = OperationRequest(hub=peer.hub, caller=caller, request=cast(Request, None), path={}, query=None, body=None)
        said = submission_of(given.child)
        draft, _ = await draft_of(ask, said)
        call = f"{draft.task}({draft.payload_text})"
        parentage = Parentage.of(parent, parent.trace)
        job = replace(draft._job(await writer.now(), parentage), id=child_id(parent.id, call, given.number))
        if "webhook" in draft.options:
            job = await writer.inserts.webhooks.wished(job, draft.options["webhook"])
        answer = await writer.inserts.insert(job)
    handle_of(draft, answer)  # raises if the child is a duplicate and its options say so
    stored = answer.job
    status, there = seen_status(stored, writer.host.clock.now()), stored.created_at != job.created_at
    return ChildSubmitted(job_id=parent.id, child_id=stored.id, status=status, duplicate=there)
