"""Every step that one of the workers, the store's own processes or people can take.

Each write may be late: its sender gets no reply, and it arrives after any number of other steps, beside its repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from headrace.core.batch import follow_ups, is_over
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle.actions import cancel, retry
from headrace.core.lifecycle.sweep import sweep
from headrace.core.limits.selection import lapses
from headrace.core.status import Status
from headrace.engine.transactions import walk_async
from headrace.errors import TransitionRefused
from headrace.runtime.writes.duplicates import meeting
from headrace.testing.exhaustive import worker
from headrace.testing.exhaustive.scenes import BATCH, JOBS, RULES, WAIT_SECONDS
from headrace.testing.exhaustive.world import NAMES, Held, Late, Process, World, run

__all__ = ["Step", "calm", "possible", "take"]

_STEP_SECONDS = 0.001
_FAULTS = frozenset(
    {"dies", "is buried", "time passes", "fails", "snoozes", "releases", "gives back", "cancels", "retries"}
    | {"cancels the batch"}
)
"""The steps that are counted against the bound of an exploration, beside every write that is late."""
_WRITES = frozenset(
    {"claims", "accepts", "starts", "records the start of", "gives back", "repeats", "sweeps", "cancels", "retries"}
    | worker.ENDINGS.keys()
)
"""The steps that write to the store, and may be late."""
_ACTORS = {"sweeps": "the sweeper ", "cancels": "someone ", "retries": "someone ", "submits": "someone "} | {
    "cancels the batch": "someone "
}


class Step(NamedTuple):
    """One step of one actor."""

    verb: str
    who: int | None = None
    """A worker."""
    job: int | None = None
    late: bool = False
    """The write arrives later; its sender does not know the outcome."""

    @property
    def cost(self) -> int:
        """How much of the bound of an exploration it uses."""
        return (self.verb in _FAULTS) + self.late

    def __str__(self) -> str:
        who = _ACTORS.get(self.verb, "") if self.who is None else f"worker {NAMES[self.who]} "
        job = "" if self.job is None else f" job {self.job + 1}"
        return f"{who}{self.verb}{job}{', without a reply so far' if self.late else ''}"


# -- which steps there are


def possible(world: World, faults: int) -> Iterator[Step]:
    """Yield every step that can be taken; ``faults``: how many may be counted in all."""
    left = faults - world.faults
    for step in (*_of_workers(world), *_of_the_store(world), *_of_people(world)):
        if step.cost <= left:
            yield step
        if step.cost < left and world.late is None and _writes(world, step):
            yield step._replace(late=True)


def _writes(world: World, step: Step) -> bool:
    """Return whether the step is a write."""
    if step.verb == "starts":
        return not worker.may_ride(world, _held(world, step)[1].job)
    return step.verb in _WRITES


def _of_workers(world: World) -> Iterator[Step]:
    for who, process in enumerate(world.processes):
        if process.id is None:
            yield Step("comes back", who)
            continue
        if process.request is not None or len(process.held) < world.scene.claims:
            yield Step("claims", who)
        yield Step("beats", who)
        for id, held in process.held.items():
            for verb in _with_job(world, held):
                yield Step(verb, who, JOBS.index(id))
        yield Step("dies", who)
        if world.state.is_alive(process.id):
            yield Step("is buried", who)


def _with_job(world: World, held: Held) -> Iterator[str]:
    """Yield what a worker can do with a job that it has."""
    if held.pending is not None:
        yield "repeats"
    elif held.began is None:
        if held.job.status is Status.ASSIGNED:
            yield "accepts"
        yield "starts"
        yield "gives back"
    else:
        if held.job.status is not Status.RUNNING:
            yield "records the start of"
        yield from worker.ENDINGS
        # The start is on record before there are children.
        is_parent = world.scene.child and held.job.id == JOBS[0] and held.job.status is Status.RUNNING
        if is_parent and world.record(1) is None:
            yield "submits the child of"


def _of_the_store(world: World) -> Iterator[Step]:
    if any(True for _ in world.silent):
        yield Step("the silent are buried")
    if world.late is not None:
        yield Step("a late write arrives")
    if world.overdue.jobs:
        yield Step("sweeps")
    if world.has_notes:
        yield Step("notes are processed")
    if world.state.spent or world.scene.expires or any(job.held for job in world.state.table.records.values()):
        yield Step("time passes")


def _of_people(world: World) -> Iterator[Step]:
    table = world.state.table
    for at, id in enumerate(JOBS):
        job = table.records.get(id)
        if job is None:
            continue
        if not job.ended and job.cancel_requested_at is None:
            yield Step("cancels", None, at)
        if job.status in (Status.FAILED, Status.CANCELLED):
            yield Step("retries", None, at)
    if world.scene.duplicate and JOBS[1] not in table.records and JOBS[1] not in table.merged:
        yield Step("submits", None, 1)
    batch = world.state.relations.batches.get(BATCH)
    if batch is not None and batch.cancelled_at is None and not is_over(batch):
        yield Step("cancels the batch")


def calm(world: World) -> Step | None:
    """Return the next step on the way to rest, without faults; None: there is none."""
    if world.late is not None:
        return Step("a late write arrives")
    for who, process in enumerate(world.processes):
        if (verb := _next_of(world, process)) is not None:
            return Step(verb, who)
        for id, held in process.held.items():
            verb = "repeats" if held.pending is not None else "starts" if held.began is None else "completes"
            return Step(verb, who, JOBS.index(id))
    if any(True for _ in world.silent):
        return Step("the silent are buried")
    if world.overdue.jobs:
        return Step("sweeps")
    if world.has_notes:
        return Step("notes are processed")
    live = [job for job in world.state.table.records.values() if not job.ended]
    if not live:
        return None
    idle = any(not job.held and job.available_at <= world.now for job in live)
    paced = any(lapses(spent) > world.now for spent in world.state.spent.values())
    if paced or not idle or any(job.held for job in live):
        return Step("time passes")
    return Step("claims", 0)


def _next_of(world: World, process: Process) -> str | None:
    """Return what a worker does before it goes on with its jobs."""
    if process.id is None:
        return "comes back"
    if not world.state.is_alive(process.id):
        return "beats"
    return None if process.request is None else "claims"


# -- taking them


def take(world: World, step: Step) -> None:
    """Take a step; time goes on by a millisecond."""
    world.now += timedelta(seconds=_STEP_SECONDS)
    world.faults += step.cost
    if step.who is None:
        _TAKE[step.verb](world, step)
    elif step.job is None:
        _take_alone(world, step, step.who)
    else:
        _take_with_job(world, step)


def _take_alone(world: World, step: Step, who: int) -> None:
    process = world.processes[who]
    match step.verb:
        case "comes back":
            worker.come_back(world, who)
        case "dies":
            world.processes[who] = Process(None, process.born)
        case "is buried":
            assert process.id is not None
            world.bury(process.id)
        case "beats":
            worker.beat(world, who)
        case "claims":
            worker.claim(world, who, late=step.late)
        case _:
            raise AssertionError(step)


def _take_with_job(world: World, step: Step) -> None:
    process, held = _held(world, step)
    match step.verb:
        case "starts":
            worker.start(world, process, held, late=step.late)
        case "repeats":
            worker.repeat(world, process, held, late=step.late)
        case "submits the child of":
            run(world.jobs.insert([world.scene.job(1, world.now)], world.now))
        case verb if verb in worker.ENDINGS:
            worker.end(world, process, held, verb, late=step.late)
        case verb:
            worker.write(world, process, held, verb, late=step.late)


def _held(world: World, step: Step) -> tuple[Process, Held]:
    assert step.who is not None
    assert step.job is not None
    process = world.processes[step.who]
    return process, process.held[JOBS[step.job]]


def _arrive(world: World, step: Step) -> None:
    late, world.late = world.late, None
    assert late is not None
    if late.change is not None:
        world.apply(late.change)
    elif late.worker is not None:
        world.claim(late.worker, late.request, late.room)


def _bury(world: World, step: Step) -> None:
    for id in list(world.silent):
        world.bury(id)


def _sweep(world: World, step: Step) -> None:
    run(world.workers.list())  # which forgets the dead that hold nothing
    for found in world.overdue.jobs:
        change = sweep(
            found.job,
            world.now,
            0.5,
            RULES,
            alive=found.alive,
            unnamed=found.unnamed,
            heard_at=found.heard_at,
            beside_suspect=found.beside_suspect,
            mass_death=found.mass_death,
        )
        _write(world, change, late=step.late)
        if step.late:
            return


def _write(world: World, change: Change | None, *, late: bool) -> None:
    if change is None:
        return
    change = world.stamped(change)
    if late:
        world.late = Late(change)
    else:
        world.apply(change)


def _process_notes(world: World, step: Step) -> None:
    for batch in run(world.families.process_notes(world.now)).over:
        run(world.families.settle(batch.id, world.now, follow_ups(batch, world.now)))


def _pass_time(world: World, step: Step) -> None:
    world.now += timedelta(seconds=WAIT_SECONDS)
    world.begun = 0


def _act(decide: Callable[[World, Job], Change | None]) -> Callable[[World, Step], None]:
    def act(world: World, step: Step) -> None:
        assert step.job is not None
        job = world.record(step.job)
        try:
            change = None if job is None else decide(world, job)
        except TransitionRefused:
            return
        _write(world, change, late=step.late)

    return act


def _cancel_batch(world: World, step: Step) -> None:
    run(world.families.cancel_batch(BATCH, world.now))


def _submit(world: World, step: Step) -> None:
    job = world.scene.job(1, world.now)

    async def execute(change: Change | None) -> Any:
        if change is None:
            return (await world.jobs.insert([job], world.now))[0]
        return world.apply(world.stamped(change))

    (answer,) = run(world.jobs.insert([job], world.now))
    run(walk_async(meeting(job, answer, lambda: world.now), execute))


_TAKE: dict[str, Callable[[World, Step], None]] = {
    "the silent are buried": _bury,
    "a late write arrives": _arrive,
    "sweeps": _sweep,
    "notes are processed": _process_notes,
    "time passes": _pass_time,
    "cancels": _act(lambda world, job: cancel(job, world.now, RULES)),
    "retries": _act(lambda world, job: retry(job, world.now)),
    "cancels the batch": _cancel_batch,
    "submits": _submit,
}
"""What the store's own processes and people do."""
