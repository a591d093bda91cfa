"""How an SQL engine stores a job: what its columns and documents contain, and the reply to a write.

A job has labels with the ids of submits that were merged into it: it is found by each of them, and they are removed
with it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.attempt import Streak
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle import deduplication as requests
from headrace.core.lifecycle.deduplication import is_repeat, replaces
from headrace.core.lifecycle.retention import Kept
from headrace.core.lifecycle.suspects import requirements_of
from headrace.core.limits.profiles import Pair
from headrace.core.limits.rate import Spent
from headrace.core.limits.selection import Usage, lapses
from headrace.core.limits.settings import Bound, Group, counted_by, limits_of
from headrace.core.matching.customers import REQUIREMENT, dedup_of
from headrace.core.query import Filter
from headrace.core.status import DEFERRED, ENDED, HELD, Reason, Status
from headrace.core.webhooks.target import Notified
from headrace.engine import Duplicated, InsertAnswer
from headrace.engines.validation import UNENCODABLE
from headrace.errors import HeadraceError, KeyReused, Unstorable

__all__ = [
    "BY_KEY",
    "LOWEST",
    "STAGES",
    "EachMicros",
    "Micros",
    "Moments",
    "Place",
    "State",
    "asked_for",
    "encode",
    "is_at_once",
    "keep_of",
    "key_of",
    "labels_asked",
    "labels_of",
    "micros",
    "moment",
    "pair_of",
    "place_of",
    "queues_by_customer",
    "rank_of",
    "replaced",
    "request_of",
    "requires_of",
    "row_of_merge",
    "rows_of_spent",
    "sort_out",
    "stage_of",
    "stages_of",
    "usage_of",
]


STAGES: dict[Status, int] = {
    **dict.fromkeys(DEFERRED, 1),
    **dict.fromkeys(HELD, 3),
    Status.PENDING: 0,
    Status.WAITING: 0,
    Status.QUEUED: 2,
    Status.COMPLETED: 4,
    Status.FAILED: 5,
    Status.CANCELLED: 5,
}
"""The number of a status for the indexes, which ranges can use; a list of words is slow and brittle."""

BY_KEY = -1
"""The stage of a queued job with a concurrency key: keys take turns, so these jobs have an index of their own."""


def stage_of(job: Job) -> int:
    """The stage of the job."""
    if job.spec.concurrency_key is not None and job.status is Status.QUEUED:
        return BY_KEY
    return STAGES[job.status]


_QUEUED = Status.QUEUED  # looked up once: in Python 3.11 that is a call


def is_at_once(job: Job) -> bool:
    """Return whether a new job is queued from the moment it was created, as ``core.lifecycle.submission.submit`` makes
    most: what is stored of it follows from that moment. By identity, since it is one object."""
    return (
        job.status is _QUEUED
        and job.spec.created_at is job.updated_at is job.arrived_at is job.available_at
        and job.act_by is job.not_after is None
        and job.told is None
        and job.waits == 0
        and job.spec.concurrency_key is None
    )


def stages_of(statuses: Iterable[Status]) -> list[int]:
    """Return the stages of jobs in these statuses."""
    found = {STAGES[status] for status in statuses}
    return sorted(found | {BY_KEY} if STAGES[Status.QUEUED] in found else found)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


LOWEST = -(2**62)
"""A number that is before every moment."""


def keep_of(retention: Kept) -> dict[str, int]:
    """Return a retention as it is stored beside a job: microseconds by status."""
    spans = {status.value: retention.of(status) for status in sorted(ENDED)}
    return {status: span // _MICRO for status, span in spans.items() if span is not None}


def micros(moment: datetime) -> int:
    """Return a moment as it is stored."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds  # a division takes twice as long


def moment(stored: int) -> datetime:
    """Return a stored moment."""
    return _EPOCH + timedelta(microseconds=stored)


class Micros(dict[datetime | None, int | None]):
    """Moments as they are stored, each converted once: the jobs of one batch share most of theirs."""

    def __init__(self) -> None:
        super().__init__({None: None})

    def __missing__(self, key: datetime) -> int:
        since = key - _EPOCH  # as ``micros``: a call for every end of a job would be a good part of this
        self[key] = value = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return value


class EachMicros:
    """Moments as they are stored, for a row with one moment, where remembering it takes longer than the conversion."""

    def __getitem__(self, moment: datetime) -> int:
        return micros(moment)


class Moments(dict[int | None, datetime | None]):
    """Stored moments, each converted once."""

    def __init__(self) -> None:
        super().__init__({None: None})

    def __missing__(self, key: int) -> datetime:
        self[key] = value = moment(key)
        return value


_encode = msgspec.json.Encoder().encode


def encode(document: Any, by: Callable[[Any], bytes] = _encode) -> str:
    """Return JSON text for the store; refuse text that a database cannot store."""
    try:
        return by(document).decode()
    except UnicodeEncodeError as error:  # a lone surrogate
        raise Unstorable(f"text that is not valid Unicode cannot be stored: {error}") from error
    except UNENCODABLE as error:
        raise Unstorable(f"it cannot be stored: {error}") from error


class State(msgspec.Struct, array_like=True):
    """What no statement reads, stored together: the cost of reading a row grows with its columns."""

    attempt: int = 0
    charged: int = 0
    redrives: int = 0
    waits: int = 0
    not_after: int | None = None
    started_at: int | None = None
    first_started_at: int | None = None
    reason: Reason | None = None
    streak: Streak | None = None
    suspect: int = 0
    spared: int | bool = 0
    blameless_losses: int = 0
    moved_to: str | None = None
    reprioritised_to: int | None = None
    fingerprint: str | None = None
    failed_at: int | None = None
    told: tuple[Notified, ...] | None = None


def key_of(job: Job) -> str | None:
    """Return the dedup key of a job as it is stored: unique over all tasks and customers."""
    return None if job.spec.dedup is None else encode((job.spec.task, dedup_of(job.spec)))


def request_of(job: Job) -> str | None:
    """Return the request key of a job as it is stored: unique over all tasks and customers."""
    request = requests.request_of(job)
    return None if request is None else encode(request)


def labels_of(job: Job) -> Iterable[str]:
    """Yield what the job is found by beside its subqueue and status."""
    labels = {f"t{tag}" for tag in job.spec.tags}
    spec = job.spec
    if spec.schedule is not None:
        labels.add(f"s{spec.schedule}")
    if spec.customer is not None:
        labels.add(f"c{spec.customer}")
    for mark, id in (("p", spec.parent), ("r", spec.root), ("b", spec.batch), ("o", spec.rerun_of)):
        if id is not None:
            labels.add(f"{mark}{id}")
    return labels


def labels_asked(filter: Filter) -> list[list[str]]:
    """Return the labels of the requested jobs: each has one of every list, so any one list finds all."""
    pairs = (
        ("p", filter.parent),
        ("o", filter.rerun_of),
        ("b", filter.batch),
        ("r", filter.root),
        ("s", filter.schedule),
        ("t", filter.tag),
    )
    found = [[f"{mark}{name}"] for mark, name in pairs if name is not None]
    return [*found, [f"c{name}" for name in sorted(filter.customer)]] if filter.customer else found


Place = tuple[str, str, str, str]
"""The key of a subqueue: queue, task, requirements and, in queues ``by_customer``, the customer as JSON (else "")."""

_sorted = msgspec.json.Encoder(order="sorted").encode


def place_of(job: Job, by_customer: Container[str] = frozenset()) -> Place:
    """Return the place of the job; ``by_customer``: the queues in which customers have subqueues of their own."""
    spec, needs = job.spec, requirements_of(job) if job.suspect else job.spec.requires
    queue = spec.queue if job.moved_to is None else job.moved_to
    whose = encode(spec.customer) if queue in by_customer else ""
    return (queue, spec.task, encode(needs, _sorted) if needs else "{}", whose)


def pair_of(place: Place) -> Pair:
    """Return the task and the requirements of the jobs in a place."""
    return place[1], place[2]


def requires_of(place: Place) -> str:
    """Return what the profile of a subqueue requires, as it is stored: subqueues of customers have profiles of their
    own, each with the profile of the task and its requirements alone as its base."""
    _, _, needs, whose = place
    if not whose:
        return needs
    mark = f'{{"{REQUIREMENT}":{{"is":{whose}}}'
    return f"{mark}}}" if needs == "{}" else f"{mark},{needs[1:]}"


def queues_by_customer(settings: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the queues in which customers have subqueues of their own, from settings by key and document."""
    return limits_of(settings).by_customer


def rank_of(job: Job) -> int:
    """Return its priority as subqueues are ordered by it: smaller is claimed first."""
    return -job.priority


def sort_out(
    jobs: Sequence[Job],
    ids: Iterable[UUID],
    keys: Mapping[str, UUID],
    requests: Mapping[str, Job],
    refused: Callable[[int, Job, HeadraceError | None], bool],
    *,
    merged: Mapping[UUID, Job] = {},
    key_of: Callable[[Job], str | None] = key_of,
    request_of: Callable[[Job], str | None] = request_of,
) -> tuple[list[int], list[tuple[UUID, UUID | None]]]:
    """Return which of these jobs to store, given the ids that are stored already, which job has which dedup key, and
    which was made for which request.

    Also, for each job, the id for its reply, or that of the job it is a duplicate of. ``refused`` is called, in order,
    for each that would be stored, with its index, and returns whether it is refused; it is also called for those that
    cannot be stored, with the reason. ``merged``: the jobs that took over what was submitted under some ids. ``key_of``
    and ``request_of``: the keys of a job as this engine stores them.
    """
    here, holders, firsts = set(ids), dict(keys), dict(requests)
    fresh, told = list[int](), list[tuple[UUID, UUID | None]]()
    for index, job in enumerate(jobs):
        if job.id in here:
            told.append((job.id, None))
            continue
        if job.id in merged:
            told.append((job.id, merged[job.id].id))
            continue
        request, key = request_of(job), key_of(job)
        first = None if request is None else firsts.get(request)
        if first is not None:
            repeat = is_repeat(job, first)
            told.append((job.id, first.id if repeat else None))
            if not repeat:
                refused(index, job, KeyReused(first))
            continue
        holder = None if key is None else holders.get(key)
        told.append((job.id, holder))
        if holder is not None or refused(index, job, None):
            continue
        here.add(job.id)
        fresh.append(index)
        if key is not None and not job.ended:
            holders[key] = job.id
        if request is not None:
            firsts[request] = job
    return fresh, told


_spent = msgspec.json.Decoder(Spent).decode
_bound = msgspec.json.Decoder(tuple[str, ...]).decode


def usage_of(held: Iterable[Sequence[Any]], spent: Iterable[Sequence[Any]] = ()) -> Usage:
    """Return what is in use: of what is held, queue, task, key and how many; of what was spent, name and data."""
    usage = Usage(spent={_bound(name): _spent(data) for name, data in spent})
    for queue, task, key, jobs in held:
        for bound in counted_by(Group(queue, task, key)):
            usage.held[bound] = usage.held.get(bound, 0) + jobs
    return usage


def rows_of_spent(spent: Mapping[Bound, Spent]) -> list[tuple[str, str, int]]:
    """Return what was used of rates as it is stored: name, data, and from when on it no longer counts."""
    return [(encode(bound), encode(one), micros(lapses(one))) for bound, one in spent.items()]


def asked_for(jobs: Iterable[Job]) -> list[UUID]:
    """Return the ids of those jobs that may have been merged into another; most calls have none."""
    return [job.id for job in jobs if job.spec.dedup is not None and replaces(job.spec)]


def replaced(jobs: Sequence[Job], answers: Sequence[InsertAnswer], merged: Mapping[UUID, Job]) -> list[InsertAnswer]:
    """Return the replies, with those for submits that were merged before."""
    if not merged:
        return list(answers)
    pairs = zip(jobs, answers, strict=True)
    return [Duplicated(merged[job.id], replaced=True) if job.id in merged else answer for job, answer in pairs]


def row_of_merge(change: Change) -> str:
    """Return what ``merge.sql`` takes: the order number and the id of the job, its payload, and its new label."""
    job = change.job
    return encode((job.seq, job.id, job.payload_text, f"m{change.merges}"))
