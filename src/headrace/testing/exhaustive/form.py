"""The form of a world: two worlds of the same form have the same future.

Moments count by what they decide: whether they have passed, and which of two comes first. Of revs and epochs only
counts whether a copy has the stored one. Ids of changes, workers and attempts are not in it, nor is history. Worlds
that differ only in which of two equal workers or jobs is which have the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle.decision import soonest
from headrace.core.status import DEFERRED
from headrace.testing.exhaustive.scenes import BATCH, JOBS, RULES
from headrace.testing.exhaustive.worker import may_ride
from headrace.testing.exhaustive.world import Held, Process, World

__all__ = ["form_of"]

T = TypeVar("T")

_OLD_AGE = timedelta(seconds=2 * RULES.beat)


def form_of(world: World) -> int:
    """Return a number that worlds of the same form share, and others do not."""
    jobs = _orders(JOBS, [_rough_job(world, id) for id in JOBS]) if world.scene.symmetric else [JOBS]
    processes = _orders(world.processes, [_rough_process(world, one) for one in world.processes])
    return min(hash(_form(world, order, ids)) for order in processes for ids in jobs)


def _orders(pair: Sequence[T], rough: Sequence[int]) -> list[Sequence[T]]:
    """Return the orders in which a pair may stand: one, if it is clear from a rough number who comes first."""
    if rough[0] < rough[1]:
        return [pair]
    turned = (pair[1], pair[0])
    return [turned] if rough[1] < rough[0] else [pair, turned]


def _rough_job(world: World, id: UUID) -> int:
    job = world.state.table.records.get(id)
    return 0 if job is None else hash((job.status, job.charged, job.unstarted_losses, job.redrives > 0, job.reason))


def _rough_process(world: World, process: Process) -> int:
    if process.id is None:
        return 0
    held = frozenset((one.job.status, one.began is None, one.doing) for one in process.held.values())
    return hash((process.id in world.state.workers, process.request is None, held))


def _form(world: World, processes: Sequence[Process], ids: Sequence[UUID]) -> tuple[Any, ...]:
    state, table = world.state, world.state.table
    names: dict[UUID | None, Any] = {None: None}
    for id, row in state.workers.items():
        names[id] = (row.alive, row.beside_suspect)
    for at, process in enumerate(processes):
        if process.id is not None:
            names[process.id] = (at, names.get(process.id))
    number: dict[UUID | None, int] = {id: at for at, id in enumerate(ids)}
    records = [table.records.get(id) for id in ids]
    places = sorted((_place(job), at) for at, job in enumerate(records) if job is not None and not job.ended)
    late = world.late
    if late is None:
        coming: Any = None
    elif late.change is not None:
        coming = _change(world, late.change, number)
    else:
        waited = any(one.id == late.worker and one.request == (late.request, late.room) for one in processes)
        coming = (names.get(late.worker, "gone"), waited, late.room)
    batch = state.relations.batches.get(BATCH)
    return (
        tuple(None if job is None else _job(world, job, names) for job in records),
        tuple(at for _, at in places),
        tuple(_process(world, process, names, number) for process in processes),
        coming,
        tuple(number.get(id) for id in table.keys.values()),
        tuple((note.value, number.get(id)) for note, id, _ in state.relations.notes),
        None if batch is None else (batch.tally, batch.settled, batch.cancelled_at is None, batch.ended_at is None),
        len(table.merged),
        tuple((bound, until > world.now) for bound, spent in state.spent.items() for until, _ in spent),
        world.begun if world.scene.rate else 0,
        tuple(world.calls.get(id, 0) for id in ids),
        tuple(sum(one == id for one, _ in world.rides) for id in ids),
    )


def _place(job: Job) -> tuple[Any, int]:
    return (job.available_at if job.status in DEFERRED else job.arrived_at), job.seq


def _job(world: World, job: Job, names: dict[UUID | None, Any]) -> tuple[Any, ...]:
    now, late, held = world.now, world.late, job.worker is not None
    patience = soonest(job, None, RULES)
    claimed = (
        held and late is not None and late.change is None and (late.worker, late.request) == (job.worker, job.claim)
    )
    return (
        job.status.value,
        job.reason,
        job.charged,
        job.unstarted_losses,
        job.suspect,
        job.spared,
        job.redrives > 0,
        job.waits > 0,
        job.attempt == job.unstarted_losses,
        job.attempt > 0,
        job.first_started_at is None,
        names.get(job.worker, "gone"),
        min(world.state.table.held.get(job.worker, {}).get(job.id, 0), 2) if job.worker is not None else None,
        held and any(one.id == job.worker and _asks(one, job.claim) for one in world.processes),
        claimed,
        None if job.act_by is None else job.act_by <= now,
        None if job.not_after is None else job.not_after <= now,
        None if job.cancel_requested_at is None else (patience is not None and patience <= now),
        held and job.assigned_at is not None and job.assigned_at <= now - _OLD_AGE,
        None if job.streak is None else job.streak.outcome.value,
    )


def _process(
    world: World, process: Process, names: dict[UUID | None, Any], number: dict[UUID | None, int]
) -> tuple[Any, ...]:
    if process.id is None:
        return ()
    held = tuple(sorted((number[id], _held(world, one, number)) for id, one in process.held.items()))
    return names[process.id], None if process.request is None else process.request[1], held


def _asks(process: Process, request: int | None) -> bool:
    return process.request is not None and process.request[0] == request


def _held(world: World, held: Held, number: dict[UUID | None, int]) -> tuple[Any, ...]:
    job, stored = held.job, world.state.table.records[held.job.id]
    owns = (job.worker, job.epoch) == (stored.worker, stored.epoch)
    pending = () if held.pending is None else (held.doing, *_change(world, held.pending, number))
    begun = (may_ride(world, job), None if held.began is None else held.began <= world.now - _OLD_AGE)
    return owns, owns and job.rev == stored.rev, job.status.value, begun, pending


def _change(world: World, change: Change, number: dict[UUID | None, int]) -> tuple[Any, ...]:
    table, job = world.state.table, change.job
    stored = table.records[job.id]
    ours = change.attempt
    closed = None if ours is None else table.attempt(job.id, ours.number)
    recognised = (
        ours is not None
        and change.worker is not None
        and closed is not None
        and (closed.outcome, closed.finished_at) == (ours.outcome, ours.finished_at)
    )
    return (
        change.verb.value,
        number[job.id],
        change.rev == stored.rev,
        change.worker is not None,
        (change.worker, change.epoch) == (stored.worker, stored.epoch),
        change.id in world.applied,
        change.id == table.last_change.get(job.id),
        recognised,
        ours is not None and change.worker is not None and ours.finished_at < stored.updated_at,
        job.status.value,
        job.charged,
        None if job.act_by is None else job.act_by <= world.now,
    )
