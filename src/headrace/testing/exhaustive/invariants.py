"""What must hold after every step, and when nothing is left to be done."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.attempt import Attempt
from headrace.core.change import Note
from headrace.core.job import Job
from headrace.core.lifecycle.decision import expired
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.core.limits.settings import group_of
from headrace.core.stats.verification import BOOKS
from headrace.core.status import DEFERRED, ENDED, HELD, Outcome, Status, Verb
from headrace.engines.memory.verification import verify
from headrace.testing.exhaustive.copies import Observed
from headrace.testing.exhaustive.scenes import JOBS, RULES
from headrace.testing.exhaustive.world import Violation, World, told

__all__ = ["check_rest", "check_state", "check_writes"]

_BOOKS = [name for name in BOOKS if name not in {"ledger", "messages", "turns", "settings"}]
_NEXT = {(old, new) for verb in TRANSITIONS.values() for old, all_new in verb.items() for new in all_new} | {
    (old, new)
    for old in TRANSITIONS[Verb.START]  # a start rides with an end, or an end without one
    for verb in (Verb.COMPLETE, Verb.FAIL, Verb.SNOOZE, Verb.RELEASE)
    for new in TRANSITIONS[verb][Status.RUNNING]
}
"""The pairs of statuses that one write may lead from and to."""
_LIVE_AGAIN = frozenset({Status.QUEUED, Status.SCHEDULED, Status.RETRYING})
_CHARGED = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT})


def check_writes(world: World) -> None:
    """Check every write of the last step; :raises Violation: naming it."""
    records = world.state.table.records
    assert isinstance(records, Observed)
    for old, new in records.written:
        for what in () if old is None else _write(world, old, new):
            raise Violation(f"{what}: {told(old)} became {told(new)}")
        for what in _job(world, new):
            raise Violation(f"{what}: {told(new)}")
    if records.written and world.scene.settings:
        _limits(world)
    records.written.clear()


def _write(world: World, old: Job, new: Job) -> Iterator[str]:
    if (old.status, new.status) not in _NEXT and old.status is not new.status:
        yield "no verb leads there"
    if new.rev <= old.rev:
        yield "the rev did not grow"
    if (new.seq, new.id, new.spec) != (old.seq, old.id, old.spec):
        yield "what must never change has changed"
    if new.attempt < old.attempt or new.redrives < old.redrives:
        yield "attempts or retries became fewer"
    if old.status is Status.COMPLETED and new.status is not Status.COMPLETED:
        yield "a completed job changed"
    if old.status is Status.WAITING and new.status is Status.QUEUED:
        parents = [world.state.table.records[id].status for id in new.after]
        if parents != [Status.COMPLETED]:
            yield "what it waits for has not completed"
    yield from _ownership(world, old, new)
    yield from _budget(old, new)


def _ownership(world: World, old: Job, new: Job) -> Iterator[str]:
    claimed = new.status in HELD and old.status not in HELD
    if new.epoch < old.epoch or (new.worker != old.worker and new.epoch == old.epoch):
        yield "the owner changed without a new epoch"
    if new.worker != old.worker and new.worker is not None and not claimed:
        yield "the owner changed without a claim"
    if claimed and (new.worker is None or not world.state.is_alive(new.worker)):
        yield "a claim gave the job to a worker that is not alive"
    if claimed and expired(old, world.now):
        yield "a claim gave away a job that has expired"


def _budget(old: Job, new: Job) -> Iterator[str]:
    retried = new.redrives > old.redrives
    if retried:
        if new.charged or new.cancel_requested_at is not None:
            yield "a retry did not give all attempts again"
        return
    if old.status in ENDED and new.status not in ENDED:
        yield "an ended job lives again without a retry"
    if new.charged < old.charged and new.status not in _LIVE_AGAIN:
        yield "charged attempts became fewer"
    if old.cancel_requested_at is not None and new.cancel_requested_at is None:
        yield "the request to cancel was forgotten"
    if old.cancel_requested_at is not None and new.status in _LIVE_AGAIN:
        yield "a job whose cancel was requested lives on"


def _job(world: World, job: Job) -> Iterator[str]:
    table = world.state.table
    if (job.status in HELD) != (job.worker is not None):
        yield "held and without a worker, or the reverse"
    if job.ended and (job.finished_at is None or job.act_by is not None):
        yield "ended, without a moment or with a deadline"
    if job.status is Status.RUNNING and job.charged >= job.max_attempts:
        yield "an attempt was started beyond the budget"
    if job.unstarted_losses > RULES.undeliverable_after:
        yield "lost unstarted more often than it may be"
    if job.status in DEFERRED and job.available_at < job.created_at:
        yield "available before it was submitted"
    kept = table.attempts.get(job.id, {})
    charged = [one for one in kept.values() if one.outcome in _CHARGED or _is_charged_loss(one)]
    if job.redrives == 0 and not job.held and job.id not in table.merged.values() and len(charged) != job.charged:
        yield f"{len(charged)} attempts that cost one are on record"
    if sum(one.outcome is Outcome.COMPLETED for one in kept.values()) != (job.status is Status.COMPLETED):
        yield "completed, and no attempt has, or the reverse"
    epochs = [kept[number].epoch for number in sorted(kept)]
    if epochs != sorted(set(epochs)):
        yield f"the epochs of its attempts do not grow, {epochs}"


def _is_charged_loss(attempt: Attempt) -> bool:
    if attempt.outcome is not Outcome.LOST or attempt.started_at is None:
        return False
    return attempt.error is None or bool((attempt.error.details or {}).get("charged", True))


def _limits(world: World) -> None:
    state = world.state
    for job in state.table.records.values():
        for bound, most in state.limits.concurrency(group_of(job)).items():
            held = sum(other.held and bound[1] == other.task for other in state.table.records.values())
            if held > most:
                raise Violation(f"{held} jobs are held of {bound}, and {most} may be")
    if world.scene.rate is not None and world.begun > world.scene.rate:
        raise Violation(f"{world.begun} jobs were given away in a span in which {world.scene.rate} may begin")


def check_state(world: World) -> None:
    """Check what the store keeps twice, and what was observed; :raises Violation: naming it."""
    table = world.state.table
    for name in _BOOKS:
        found = verify(world.state, name, None)
        if found.wrong:
            raise Violation(f"not so: {found.holds}: {', '.join(one.what for one in found.findings)}")
    if table.accepted != len(table.records):
        raise Violation(f"{table.accepted} jobs were accepted, and {len(table.records)} are there")
    for id, job in table.records.items():
        # One call may not be on record, if there may be another attempt: it was lost with a start still to be written.
        most = job.max_attempts + (job.max_attempts > 1) + job.spared
        if world.calls.get(id, 0) > most:
            raise Violation(f"the handler was called {world.calls[id]} times, and may be {most} times: {told(job)}")
        if sum(one == id for one, _ in world.rides) > 1:
            raise Violation(f"two calls of the handler have no start on record: {told(job)}")
    if world.scene.child:
        _children(world)
    if any(job.worker is not None and not world.state.is_alive(job.worker) for job in table.records.values()):
        _noticed(world)
    for batch in world.state.relations.batches.values():
        if batch.settled and any(not job.ended and not job.redrives for job in table.records.values()):
            raise Violation("what follows the end of a batch was submitted before its end")


def _noticed(world: World) -> None:
    """Check that the sweeper will take the jobs of dead workers."""
    overdue = {found.job.id for found in world.overdue.jobs}
    for id, job in world.state.table.records.items():
        if job.worker is not None and not world.state.is_alive(job.worker) and id not in overdue:
            raise Violation(f"its worker is dead, and the sweeper does not find it: {told(job)}")


def _children(world: World) -> None:
    """Check that a cancel of the parent reached its child, or a note of it is on its way."""
    parent, child = (world.record(at) for at in (0, 1))
    if parent is None or child is None or parent.redrives or child.redrives:
        return
    cancelled = parent.status is Status.CANCELLED or (parent.held and parent.cancel_requested_at is not None)
    noted = any(note is Note.CANCELLED and id == JOBS[0] for note, id, _ in world.state.relations.notes)
    if cancelled and not noted and not child.ended and child.cancel_requested_at is None:
        raise Violation(f"its parent was cancelled, and no note is on its way to it: {told(child)}")


def check_rest(world: World) -> None:
    """Check that nothing is left; :raises Violation: naming what is."""
    state = world.state
    for job in state.table.records.values():
        if not job.ended:
            raise Violation(f"nothing is left to be done, and it has not ended: {told(job)}")
    if any(state.table.held.values()) or any(state.usage.held.values()):
        raise Violation(f"all jobs have ended, and workers hold some: {state.table.held}")
    if state.table.keys:
        raise Violation(f"all jobs have ended, and hold keys: {state.table.keys}")
    if state.relations.notes:
        raise Violation(f"all jobs have ended, and notes are left: {list(state.relations.notes)}")
    for batch in state.relations.batches.values():
        if not batch.settled or batch.tally.live:
            raise Violation(f"all jobs have ended, and their batch has not: {batch.tally}")
