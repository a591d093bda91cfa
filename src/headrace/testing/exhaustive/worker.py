"""What a worker does with the store, without its tasks and threads: it decides by ``core``, and repeats a write until
it knows the outcome."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from headrace.core.attempt import Completed, Ending, ErrorInfo, Failed, Released, Snoozed
from headrace.core.change import Applied, Change, WasStale, until_applied
from headrace.core.job import Job
from headrace.core.lifecycle.execution import accept, finish, release, start_may_wait, start_or_release
from headrace.core.status import Status
from headrace.engine import Beat, Dead
from headrace.errors import TransitionRefused
from headrace.testing.exhaustive.scenes import RULES
from headrace.testing.exhaustive.world import Held, Late, Process, Violation, World, run, told

__all__ = ["ENDINGS", "beat", "claim", "come_back", "end", "may_ride", "repeat", "start", "write"]

Decide = Callable[[Job], Change | None]

ENDINGS: dict[str, Ending] = {
    "completes": Completed('"done"'),
    "fails": Failed(error=ErrorInfo("Error", "it failed")),
    "snoozes": Snoozed(0.0),
    "releases": Released(),
}
"""How a handler may end."""


def come_back(world: World, who: int) -> None:
    """Begin anew, with an empty memory and another id."""
    world.processes[who] = world.come(who, world.processes[who].born + 1)


def beat(world: World, who: int) -> None:
    """Give a sign of life; who is told that it was buried begins anew, and what it does not know it gives back."""
    process = world.processes[who]
    assert process.id is not None
    reply = run(world.workers.beat(process.id, Beat(held=tuple(process.held)), world.now))
    if isinstance(reply, Dead):
        come_back(world, who)
    elif process.request is None:
        for job in reply.unknown:
            write(world, process, Held(job), "gives back")


def claim(world: World, who: int, *, late: bool) -> None:
    """Claim jobs, or repeat the claim that has no reply so far."""
    process = world.processes[who]
    assert process.id is not None
    if process.request is None:
        process.requests += 1
        process.request = process.requests, world.scene.claims - len(process.held)
    if late:
        world.late = Late(None, process.id, *process.request)
        return
    reply = world.claim(process.id, *process.request)
    if isinstance(reply, Dead):
        come_back(world, who)
        return
    process.request = None
    for job in reply.jobs:
        if job.worker != process.id:
            raise Violation(f"a claim returned a job of another worker: {told(job)}")
        process.held.setdefault(job.id, Held(job))


def may_ride(world: World, job: Job) -> bool:
    """Return whether the handler is called before the start is written; a hub always writes it first."""
    return not world.scene.offered and start_may_wait(job)


def start(world: World, process: Process, held: Held, *, late: bool) -> None:
    """Call the handler, or write its start first."""
    if may_ride(world, held.job):
        _call(world, process, held)
    else:
        write(world, process, held, "starts", late=late)


def _call(world: World, process: Process, held: Held) -> None:
    id = held.job.id
    world.calls[id] = world.calls.get(id, 0) + 1
    process.held[id] = Held(held.job, world.now)
    if held.job.status is not Status.RUNNING:
        world.rides |= {(id, held.job.epoch)}


def end(world: World, process: Process, held: Held, doing: str, *, late: bool) -> None:
    """End the run of a handler, at this moment."""
    write(world, process, replace(held, at=world.now), doing, late=late)


def write(world: World, process: Process, held: Held, doing: str, *, late: bool = False) -> None:
    """Decide and write; a job about which there is nothing to write is given up."""
    change = _decide(world, held, doing)
    if change is None:
        if held.job.status is not Status.RUNNING or held.job.worker != process.id:
            process.held.pop(held.job.id, None)
        return
    held = process.held[held.job.id] = replace(held, pending=change, doing=doing)
    repeat(world, process, held, late=late)


def repeat(world: World, process: Process, held: Held, *, late: bool) -> None:
    """Write what has no reply so far, and decide again as often as the job has moved."""
    first = held.pending
    assert first is not None
    if late:
        world.late = Late(first)
        return

    def decide(job: Job) -> Change | None:
        nonlocal first
        if first is not None:
            change, first = first, None
            return change
        if (job.worker, job.epoch) != (held.job.worker, held.job.epoch):
            raise Violation(f"a worker is to decide again on a job that it has lost: {told(job)}")
        return _decide(world, replace(held, job=job), held.doing)

    verdict = _walk(world, held.job, decide)
    if isinstance(verdict, Applied) and verdict.job.worker == process.id:
        own = process.held[held.job.id] = Held(verdict.job, held.began)
        if own.began is None and own.job.status is Status.RUNNING:
            _call(world, process, own)
    else:
        process.held.pop(held.job.id, None)


def _walk(world: World, job: Job, decide: Decide) -> Applied | WasStale:
    walk = until_applied(job, decide)
    change = next(walk)
    while True:
        try:
            change = walk.send(None if change is None else world.apply(change))
        except StopIteration as stop:
            verdict: Applied | WasStale = stop.value[1]
            return verdict


def _decide(world: World, held: Held, doing: str) -> Change | None:
    try:
        change = _decided(world, held, doing)
    except TransitionRefused:
        return None
    return None if change is None else world.stamped(change)


def _decided(world: World, held: Held, doing: str) -> Change | None:
    if doing == "accepts":
        return accept(held.job, world.now, RULES)
    if doing in ("starts", "records the start of"):
        cancelled = held.job.cancel_requested_at is not None and held.began is None
        return start_or_release(held.job, held.began or world.now, RULES, gives_back=cancelled)
    if doing == "gives back":
        return release(held.job, world.now)
    return finish(held.job, ENDINGS[doing], held.at or world.now, 0.5, RULES, held.began)
