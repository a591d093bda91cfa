"""Decisions on webhooks: which deliveries follow from a change of a job, and in which order they are sent.

A delivery is a job of its own, stored in the commit of the change that it reports. The record of the job keeps the last
delivery to each target, and the next one to it waits for its end: so each target receives the messages of a job in
order.

A claim is no change: a store gives jobs to a worker in bulk, and writes nothing else. So the message of a claim is
stored by a change of its own right behind it (``claim_told``), or else with the next change of the job.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.change import Change
from headrace.core.defaults import DELIVERY_RETENTION, MAX_WEBHOOK_RESULT_BYTES, WEBHOOK_PROGRESS_INTERVAL
from headrace.core.job import Job, Spec, derived_id
from headrace.core.lifecycle.retention import Kept
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import ENDED, Reason, Status, Verb
from headrace.core.webhooks.target import CLAIMS, Notified, Occasion, Target
from headrace.core.words import HEADRACE, Vocabulary

__all__ = [
    "NUMBER",
    "POLICY",
    "QUEUE",
    "TASK",
    "claim_told",
    "delivery",
    "first_told",
    "is_delivery",
    "message_in_words",
    "message_of",
    "owing",
    "tell",
    "telling",
    "unchained",
]

QUEUE, TASK = "headrace.webhooks", "headrace.deliver"


POLICY = Retry(max_retries=7, initial=1.0, factor=4.0, cap=4096.0)
"""Eight attempts, over an hour and a half."""

_ATTEMPT_TIMEOUT_SECONDS = 60.0
"""Seconds for an attempt; the request itself has fewer."""

NUMBER = "number"
"""The name in its metadata of the number of a message, by which a missing one is found."""


_RETENTION = Kept(completed=DELIVERY_RETENTION.total_seconds(), failed=30 * 86_400.0, cancelled=30 * 86_400.0)

_RUNNING, _RETRYING, _PROGRESS = Status.RUNNING, Status.RETRYING, Verb.PROGRESS
_CLAIMED: dict[Status, Occasion] = {Status.ASSIGNED: "assigned", Status.ACCEPTED: "accepted"}


def is_delivery(spec: Spec) -> bool:
    """Return whether it is a delivery itself: deliveries make no deliveries."""
    return spec.task == TASK or spec.queue == QUEUE


def occasion_of(before: Job, made: Job, verb: Verb) -> Occasion | None:
    """Return the event of a change from ``before`` to ``made``; None: there is none."""
    status = made.status
    if verb is _PROGRESS:
        return "progress"
    if status is before.status:
        return None
    if status in ENDED:
        event: Occasion = status.value  # type: ignore[assignment]  # they have the same words
        return event
    if status is _RUNNING:
        return "started"
    if status in _CLAIMED:
        return _CLAIMED[status]
    return "retrying" if status is _RETRYING else None


def telling(before: Job, change: Change) -> Change:
    """Return the change with the deliveries that follow from it."""
    event, (held, owed) = occasion_of(before, change.job, change.verb), owing(before)
    job, inserts = (replace(change.job, told=held.told) if owed else change.job), owed
    if event is not None:
        job, told = tell(job, event)
        inserts += told
    return replace(change, job=job, inserts=(*change.inserts, *inserts)) if inserts else change


def owing(job: Job) -> tuple[Job, tuple[Job, ...]]:
    """Return a job with the message of its claim, if that is not stored yet, and the deliveries that send it."""
    event = _CLAIMED.get(job.status)
    if event is None or not any(event in target.events for target in job.spec.webhook or ()):
        return job, ()
    return tell(job, event, replace(job, updated_at=job.accepted_at or job.assigned_at or job.updated_at))


def claim_told(job: Job) -> Change | None:
    """Return the change of a job that its worker was just given which stores the messages of that claim; None: there
    are none, or they are stored."""
    told, inserts = owing(job)
    if not inserts:
        return None
    made = replace(told, rev=job.rev + 1)
    return Change(verb=Verb.CLAIM, rev=job.rev, job=made, epoch=job.epoch, worker=job.worker, inserts=inserts)


def first_told(job: Job) -> tuple[Job, tuple[Job, ...]]:
    """Return a new job with the deliveries of its submit, to be stored with it."""
    return tell(job, "submitted")


def tell(job: Job, event: Occasion, seen: Job | None = None) -> tuple[Job, tuple[Job, ...]]:
    """Return the job, which records the messages of this event, and the deliveries that send them.

    ``seen``: the job as it was at the event, if it has changed since.
    """
    shown = job if seen is None else seen
    at = shown.updated_at
    told = {one.target: one for one in job.told or ()}
    inserts = list[Job]()
    for target in job.spec.webhook or ():
        if event not in target.events:
            continue
        last = told.get(target.id)
        spoke = None if last is None else last.progress_at
        if event == "progress":
            if spoke is not None and at - spoke < WEBHOOK_PROGRESS_INTERVAL:
                continue
            spoke = at
        count = 1 if last is None else last.count + 1
        # By the rev, not the count: a worker of the version before drops the record of messages. Of a claim by the
        # epoch, which no other has: there is no rev at which its message must be stored.
        which = f"e{shown.epoch}" if event in CLAIMS else job.rev
        id = derived_id(job.id, f"{job.id}/{target.id}/{event}/{which}")
        if last is not None and last.last == id:
            continue  # a claim that was told before; nothing else is, while a worker has not started
        after = () if last is None or at - last.at >= DELIVERY_RETENTION else (last.last,)
        message, about = message_of(shown, event), (str(job.id),)
        inserts.append(delivery(id, target, message, at, after=after, tags=about, number=count))
        told[target.id] = Notified(target.id, count, id, at, spoke)
    return (replace(job, told=tuple(told.values())), tuple(inserts)) if inserts else (job, ())


def unchained(job: Job) -> Job | None:
    """Return a delivery that waits for one that is gone as one that is sent at once: the message matters more than the
    order. None: it is no delivery, or waits for nothing."""
    if not is_delivery(job.spec) or not job.spec.after:
        return None
    return replace(job, spec=replace(job.spec, after=()), status=Status.QUEUED, waits=0)


def delivery(
    id: UUID,
    target: Target,
    message: dict[str, Any],
    at: datetime,
    *,
    after: tuple[UUID, ...] = (),
    tags: tuple[str, ...] = (),
    number: int | None = None,
) -> Job:
    """Return the job that sends a message to a target; ``number``: the message's among those of its job to it.

    Its id there (``webhook-id``) is part of the payload: sent again, it is the same message.
    """
    payload = {"webhook": target.id, "id": f"msg_{id.hex}", "message": message}
    spec = Spec(
        task=TASK,
        created_at=at,
        queue=QUEUE,
        retry=POLICY,
        timeout=_ATTEMPT_TIMEOUT_SECONDS,
        retention=_RETENTION,
        tags=(target.id, *tags),
        metadata={} if number is None else {NUMBER: number},
        customer=target.customer,
        concurrency_key=_receiver(target),
        after=after,
        after_when="ended",
    )
    return Job(
        id=id,
        spec=spec,
        payload_text=_text(payload),
        status=Status.WAITING if after else Status.QUEUED,
        available_at=at,
        arrived_at=at,
        updated_at=at,
        waits=len(after),
    )


def _receiver(target: Target) -> str:
    """Return the concurrency key that deliveries to one webhook of the operator, or to all of one customer, share."""
    return target.id if target.customer is None else "webhooks"


def _text(payload: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(payload).decode()
    except UnicodeEncodeError:  # a lone surrogate: then the job of the message cannot be stored either
        return msgspec.json.encode({**payload, "message": {}}).decode()


def message_of(job: Job, event: Occasion) -> dict[str, Any]:
    """Return the message about a job: its state, not its arguments, which may be confidential."""
    data: dict[str, Any] = {
        "job_id": job.id,
        "task": job.spec.task,
        "queue": job.queue,
        "status": job.status,
        "reason": job.reason,
        "customer": job.spec.customer,
        "priority": job.priority,
        "tags": job.spec.tags,
        "metadata": job.spec.metadata,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "created_at": job.spec.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
    }
    if job.progress is not None:
        data["progress"] = job.progress
    if event == "retrying":
        data["retry_at"] = job.available_at
    if job.error is not None and event in ("retrying", "failed", "cancelled"):
        data["error"] = {"type": job.error.type, "message": job.error.message}
    if event == "completed":
        result = _result(job.result_text or "null")
        data |= {"result_omitted": True} if result is None else {"result": result}
    return {"type": f"job.{event}", "timestamp": job.updated_at, "data": data}


def message_in_words(message: dict[str, Any], words: Vocabulary) -> dict[str, Any]:
    """Return a message as it is sent to a webhook that wants these words; in the store it is in ours."""
    data = message.get("data")
    if words is HEADRACE or not isinstance(data, dict) or data.get("status") not in _STATUSES:
        return message
    reason = Reason.TIMEOUT if data.get("reason") == Reason.TIMEOUT else None
    return message | {"data": data | {"status": words.json_word(Status(data["status"]), reason)}}


_STATUSES = frozenset(Status)


def _result(text: str) -> msgspec.Raw | None:
    """Return the result as it is, or None if it is too large or not valid JSON: a handler may write what it likes."""
    if len(text) > MAX_WEBHOOK_RESULT_BYTES:
        return None
    try:
        data = text.encode()
        msgspec.json.decode(data)
    except (UnicodeEncodeError, msgspec.DecodeError):
        return None
    return msgspec.Raw(data) if len(data) <= MAX_WEBHOOK_RESULT_BYTES else None
