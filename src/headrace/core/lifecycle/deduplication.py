"""Duplicates: what a submit does with the job that holds its dedup key or its request key.

A job holds its dedup key while it is live, and with ``dedup_for`` after it completed until that long after its submit.
If the key is held, an engine replies to a submit with the holder. ``meet`` decides what happens to the holder; the
change is applied like every other, if the holder has not changed since. A request key is simpler: the same request,
sent again, gets the job that it made the first time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from headrace.core.attempt import Event
from headrace.core.change import Change, KeyEffect
from headrace.core.job import Job, Pairs, Spec
from headrace.core.lifecycle.decision import change, dated, held_until, placed
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.core.matching.customers import own
from headrace.core.status import HELD, Status, Verb
from headrace.core.times import utc

__all__ = ["has_lapsed", "hash_of", "is_repeat", "lapse", "meet", "replaced", "replaces", "request_of"]


_MAX_EXACT_FLOAT = 2**53
"""Up to here, a number with a fraction of zero is the same number without one."""


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= _MAX_EXACT_FLOAT else value


def hash_of(
    payload_text: str,
    route: Mapping[str, Any] | None = None,
    query: Pairs | None = None,
    uncounted: Collection[str] = (),
) -> str:
    """Return the hash that equal requests share: order of fields, spaces and escapes do not count.

    ``route`` and ``query``: the parameters of an HTTP request, which count like its payload; in the query, the order of
    different names does not count. ``uncounted``: the fields of the payload that do not count, such as what the server
    found out by itself.
    """
    said: Any = json.loads(payload_text, parse_float=_number)
    if uncounted:
        said = {name: value for name, value in said.items() if name not in uncounted}
    if route or query:
        values = dict[str, list[str]]()
        for name, value in query or ():
            values.setdefault(name, []).append(value)
        said = [said, route or {}, values]
    canonical = json.dumps(said, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return sha256(canonical.encode()).hexdigest()


def request_of(job: Job) -> tuple[str, str] | None:
    """Return what no two stored jobs share: the task, and the request key of its customer; None: it has no key."""
    key = job.spec.request_key
    return None if key is None else (job.spec.task, own(job.spec.customer, key))


def is_repeat(job: Job, first: Job) -> bool:
    """Return whether a job with the request key of ``first`` is the same request; else the key was reused."""
    return job.spec.request_hash == first.spec.request_hash


def replaces(spec: Spec) -> bool:
    """Return whether a submit may be merged into the holder of its dedup key, so that its id may be known already."""
    return spec.on_duplicate == "replace" and spec.dedup is not None


def has_lapsed(holder: Job, now: datetime) -> bool:
    """Return whether an ended job no longer holds its dedup key: its period is over."""
    until = held_until(holder)
    return holder.ended and (until is None or until <= now)


def meet(holder: Job, job: Job, now: datetime) -> Change | None:
    """Return what a submit makes of the job that holds its dedup key; None: no change, and ``job`` is a duplicate.

    A change that ``merges`` the submit is its reply. Any other takes the key from the holder and inserts ``job``.
    """
    if job.spec.dedup is None or (job.spec.request_key is not None and request_of(job) == request_of(holder)):
        return None  # the same request, sent again: it gets its job, in whatever status
    if holder.ended:
        # A period refuses submits, not a person who wants the work done again.
        return lapse(holder, now, job) if has_lapsed(holder, now) or job.spec.rerun_of is not None else None
    if not replaces(job.spec) or holder.status not in TRANSITIONS[Verb.REPLACE]:
        return None
    return replaced(holder, job, now)


def lapse(holder: Job, now: datetime, job: Job | None = None) -> Change:
    """Make a completed job free its dedup key, for ``job`` if that is given."""
    freed = change(holder, Verb.LAPSE, now, {}, owner=False, key=KeyEffect.RELEASE)
    return freed if job is None else replace(freed, inserts=(job,))


def replaced(holder: Job, job: Job, now: datetime) -> Change:
    """Give the holder the work of the last submit; one that a worker has runs on as it is, and frees the key."""
    return _let_go(holder, job, now) if holder.status in HELD else _merged(holder, job, now)


def _let_go(holder: Job, job: Job, now: datetime) -> Change:
    event = Event(Verb.REPLACE, dated(holder, now), details={"new_job": str(job.id)})
    decided = change(
        holder, Verb.REPLACE, now, {"status": holder.status}, owner=False, key=KeyEffect.RELEASE, event=event
    )
    return replace(decided, inserts=(job,))


def _merged(holder: Job, job: Job, now: datetime) -> Change:
    # Time and queue are those of the last submit, and all attempts are available again.
    fields: dict[str, Any] = _start(holder, job, now) | {
        "payload_text": job.payload_text,
        "not_after": job.not_after,
        "act_by": job.not_after if holder.first_started_at is None else None,
        "charged": 0,
        "moved_to": None if job.queue == holder.spec.queue else job.queue,
        "reprioritised_to": None if job.priority == holder.spec.priority else job.priority,
    }
    details: dict[str, Any] = {}
    if fields["available_at"] > now:
        details["until"] = utc(fields["available_at"])
    if job.queue != holder.queue:
        details |= {"from_queue": holder.queue, "to_queue": job.queue}
    if job.priority != holder.priority:
        details |= {"from_priority": holder.priority, "to_priority": job.priority}
    event = Event(Verb.REPLACE, dated(holder, now), details=details | {"submit": str(job.id)})
    decided = change(holder, Verb.REPLACE, now, fields, owner=False, event=event)
    return replace(decided, merges=job.id)


def _start(holder: Job, job: Job, now: datetime) -> dict[str, Any]:
    """Return when it runs: as the last submit requests. A queued job that is to run at once keeps its position."""
    due = job.available_at
    if holder.status is Status.WAITING:
        return {"status": Status.WAITING, "available_at": due}
    if due > now:
        return {"status": placed(now, due), "available_at": due, "arrived_at": due}
    if holder.status is Status.QUEUED:
        return {"status": Status.QUEUED, "available_at": holder.available_at}
    due = min(holder.available_at, now)
    return {"status": Status.QUEUED, "available_at": due, "arrived_at": due}
