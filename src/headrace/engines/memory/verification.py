"""Invariants of a memory store: what it keeps beside the records of its jobs, compared with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from uuid import UUID

from headrace.core.change import Note
from headrace.core.job import Job
from headrace.core.stats.verification import Invariant, Mismatch
from headrace.core.status import DEFERRED, ENDED, LIVE, Status, Verb
from headrace.core.webhooks.messages import missing
from headrace.engines.memory.state import State

__all__ = ["verify"]


def verify(state: State, book: str, now: datetime | None) -> Invariant:
    """Check one invariant, other than the ledger."""
    if book == "messages":
        found = [] if now is None else missing(state.table.records.values(), now)
        return Invariant.of(book, _jobs(state), (_about(*one) for one in found))
    return Invariant.of(book, _CHECKED.get(book, _jobs)(state), _BOOKS[book](state))


def _jobs(state: State) -> int:
    return len(state.table.records)


def _about(job: Job, what: str) -> Mismatch:
    return Mismatch(what, str(job.id))


def _parts(state: State) -> Iterator[Mismatch]:
    table = state.table
    for what, kept in (("an attempt", table.attempts), ("an act", table.events), ("a change", table.last_change)):
        for id in kept:
            if id not in table.records:
                yield Mismatch(f"{what} of a job that is gone", str(id))


def _keys(state: State) -> Iterator[Mismatch]:
    keys, held = state.table.keys, set(state.table.keys.values())
    for id in held:
        job = state.table.records.get(id)
        if job is None or (job.ended and (job.status is not Status.COMPLETED or job.spec.dedup_for is None)):
            yield Mismatch("it has ended, and still holds its dedup key", str(id))
    for job in state.table.records.values():
        if job.status not in LIVE or job.spec.dedup is None or job.id in held:
            continue
        # A job that was replaced while a worker had it has freed its key.
        if not any(event.verb == Verb.REPLACE for event in state.table.events.get(job.id, ())):
            yield _about(job, "it is live, and does not hold its dedup key")
    for key, count in Counter(keys.values()).items():
        if count > 1:
            yield Mismatch("it holds more than one dedup key", str(key))


def _lines(state: State) -> Iterator[Mismatch]:
    table = state.table
    found: dict[UUID, list[str]] = {}
    indexes = [("in line", line) for line in table.lines.values()] + [("deferred", table.deferred)]
    for name, index in [*indexes, *((status.value, index) for status, index in table.ended.items())]:
        for _, id in index:
            found.setdefault(id, []).append(name)
    for job in table.records.values():
        if found.pop(job.id, []) != _looked_for(job.status):
            yield _about(job, f"it is {job.status}, and not where such jobs are looked for")
    for id in found:
        yield Mismatch("it is looked for, and gone", str(id))


def _looked_for(status: Status) -> list[str]:
    if status is Status.QUEUED:
        return ["in line"]
    return ["deferred"] if status in DEFERRED else [status.value] if status in ENDED else []


def _held(state: State) -> Iterator[Mismatch]:
    for job in state.table.records.values():
        if job.held and (job.worker is None or job.worker not in state.workers):
            yield _about(job, "it is held, and its worker is not known")
        if job.worker is not None and job.id not in state.table.held.get(job.worker, {}):
            yield _about(job, "its worker does not have it among those that it holds")


def _attempts(state: State) -> Iterator[Mismatch]:
    for job in state.table.records.values():
        kept = state.table.attempts.get(job.id, {})
        last = job.attempt if job.streak is None else job.streak.number
        if job.status is not Status.RUNNING and job.attempt > 0 and last not in kept:
            yield _about(job, "its last attempt is not on record")
        if any(number > job.attempt for number in kept):
            yield _about(job, "an attempt is on record that it has not come to")


def _waits(state: State) -> Iterator[Mismatch]:
    records, relations = state.table.records, state.relations
    noted = {(note, id) for note, id, _ in relations.notes}
    for job in records.values():
        if job.status is not Status.WAITING:
            continue
        alive = any((one := records.get(id)) is not None and not one.ended for id in job.spec.after)
        told = (Note.WAITS, job.id) in noted or any((Note.ENDED, id) in noted for id in job.spec.after)
        if not alive and not told:
            yield _about(job, "it waits, but for nothing that is live, and no note is on its way")


def _batches(state: State) -> Iterator[Mismatch]:
    members: dict[object, Counter[Status]] = {}
    for job in state.table.records.values():
        if job.spec.batch is not None:
            members.setdefault(job.spec.batch, Counter())[job.status] += 1
    for batch in state.relations.batches.values():
        there, tally = members.get(batch.id, Counter()), batch.tally
        live = sum(count for status, count in there.items() if status not in ENDED)
        fewer = any(getattr(tally, status.value) < there[status] for status in ENDED)
        if tally.total - tally.ended != live or fewer:
            yield Mismatch(f"it counts {tally}, and has {dict(there)}", str(batch.id))


def _nothing(state: State) -> Iterator[Mismatch]:
    return iter(())


_BOOKS: dict[str, Callable[[State], Iterator[Mismatch]]] = {
    "parts": _parts,
    "keys": _keys,
    "lines": _lines,
    "turns": _nothing,
    "held": _held,
    "attempts": _attempts,
    "waits": _waits,
    "batches": _batches,
    "settings": _nothing,
}
_CHECKED: dict[str, Callable[[State], int]] = {
    "turns": lambda state: 0,
    "batches": lambda state: len(state.relations.batches),
    "settings": lambda state: 0,
}
